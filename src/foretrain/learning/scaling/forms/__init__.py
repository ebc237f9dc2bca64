"""Formulas for the time of a step over placements and batch sizes, one file each."""
