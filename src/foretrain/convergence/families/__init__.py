"""Families of learning curves: the classes in the files of this package."""

from foretrain.convergence.families._base import CurveFamily, CurveHorizon, families

__all__ = ["CurveFamily", "CurveHorizon", "families"]
