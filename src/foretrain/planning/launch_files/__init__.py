"""Launch files of a chosen plan: one file per target, found by name in `catalogue`."""
