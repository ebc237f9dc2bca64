"""WHEN IT IS GOOD ENOUGH: curve families, earlier runs, batch-size efficiency, steps to a target."""
