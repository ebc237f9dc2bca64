"""WHAT WE CONCLUDE: fitted models and calibrations."""
