"""Families of learning curves, one file each."""

from __future__ import annotations

from functools import cache

from foretrain.convergence.families._base import Family, Span
from foretrain.convergence.families.annealing import Annealing
from foretrain.convergence.families.exponential import Exponential
from foretrain.convergence.families.floorless_power_law import FloorlessPowerLaw
from foretrain.convergence.families.log_power import LogPower
from foretrain.convergence.families.optimus import Optimus, WeightedOptimus
from foretrain.convergence.families.power_law import PowerLaw
from foretrain.convergence.families.stretched_exponential import StretchedExponential
from foretrain.registry import Registry

__all__ = ["Family", "Span", "families"]


@cache
def families() -> Registry[Family]:
    """The families; two of one name are refused."""
    known = (
        Optimus(),
        WeightedOptimus(),
        PowerLaw(),
        FloorlessPowerLaw(),
        Exponential(),
        StretchedExponential(),
        LogPower(),
        Annealing(),
    )
    return Registry(
        "curve family",
        known,
        name=lambda family: family.name,
        hint=f"Known: {', '.join(item.name for item in known)}",
    )
