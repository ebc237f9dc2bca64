"""WHAT ONE OPERATOR COSTS: models that price a piece of work on one device, by kind."""
