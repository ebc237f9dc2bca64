"""Simulated scheduling: jobs progress by arithmetic, and time jumps from event to event."""
