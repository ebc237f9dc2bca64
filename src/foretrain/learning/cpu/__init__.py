"""Fits of a CPU's operator times."""
