"""Families of learning curves, one file each."""

from foretrain.convergence.families._base import Family, Span
from foretrain.convergence.families.catalogue import families

__all__ = ["Family", "Span", "families"]
