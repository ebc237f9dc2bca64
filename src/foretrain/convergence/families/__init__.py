"""Families of learning curves, one file each."""

from foretrain.convergence.families._base import Family, Span, families

__all__ = ["Family", "Span", "families"]
