"""Scheduling policies: one file each, found by `catalogue`."""
