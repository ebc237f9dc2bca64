"""Run a training command and watch it: its steps, and the resources its processes use."""
