"""Dividing a recorded step between devices: which tensors, by which rules, and the divided graph."""
