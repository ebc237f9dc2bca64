"""Ways to spread a training step over many devices."""
