"""Calibrations from a user's own measurements: runs of CPU workers, profiles, and plausible timings."""
