"""Measured times of operators and layers: a model profiled on this machine, or a trace made on another."""
