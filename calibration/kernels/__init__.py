"""Fits of the operator models to measured kernels."""
