"""From calls to operators: one file per group of kinds, each with its own table of rules."""

from foretrain.workloads.rules.book import operators, unknown_names

__all__ = ["operators", "unknown_names"]
