"""What a cluster adds to model and device: its hosts and its network, learned from jobs of other models."""
