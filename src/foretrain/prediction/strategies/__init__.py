"""Parallelisation strategies: they divide, replicate and shard the program of a step."""
