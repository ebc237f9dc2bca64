"""WHAT WILL HAPPEN: what one training step takes of a device - time, memory, network."""
