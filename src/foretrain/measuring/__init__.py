"""WHAT HAPPENED: measuring machines and training runs."""
