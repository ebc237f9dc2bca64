"""Launch files of a plan: one module per launch target, registered in `catalogue`."""
