"""Families of learning curves, one file each."""

from foretrain.convergence.families._base import CurveFamily, CurveHorizon, families

__all__ = ["CurveFamily", "CurveHorizon", "families"]
