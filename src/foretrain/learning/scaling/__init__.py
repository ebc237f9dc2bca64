"""From a few timed placements and batch sizes to all the others: forms, priors, fits, intervals."""
