"""Fitting the operator models to measured kernels; writes `facts/data/calibrations`."""
