"""Corrections of predictions by the user's own measurements: read from files, applied by `apply`."""
