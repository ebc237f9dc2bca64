"""What starts, finds and ends attempts: one file for each kind of cluster, found by `catalogue`."""
