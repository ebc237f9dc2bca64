"""Fits of links and of the variation of step times to measured collectives and multi-GPU runs."""
