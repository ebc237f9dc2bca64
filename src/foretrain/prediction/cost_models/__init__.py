"""Cost models: the time of every operator of a step on one device."""
