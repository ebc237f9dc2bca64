"""What a cluster adds to model and device, its hosts and its network, fitted on jobs of other models."""
