"""The plan itself as a forecast: a run that is on the way of those that worked meets its target near the end.

A curve extrapolated from before the learning rate falls does not know what the fall will bring. Where the
planned end is known and the gap to the target has closed as far as it had in runs that met theirs, the share
of the plan at which those did is a better guess than the curve. It does not say whether the plan is good.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files

import numpy as np

from foretrain.convergence.curves import Curve, Direction
from foretrain.estimates import Quantiles

CHANCE = 0.5
"""The plan says when, not whether: as good as a coin."""
_LAST = 3


@cache
def _shares() -> dict[str, float]:
    text = files("foretrain.convergence").joinpath("plan_share.toml").read_text(encoding="utf-8")
    return {name: value for name, value in tomllib.loads(text).items() if isinstance(value, float)}


def steps_by_plan(curve: Curve, target: float) -> Quantiles | None:
    """When the target is met if this run is like those that worked; None if too far off or not planned.

    Only of metrics that rise: fitted on accuracies, while the first values of a loss say little of its gap.
    """
    if curve.direction is Direction.DOWN:
        return None
    if not curve.planned_steps or curve.last_step >= curve.planned_steps:
        return None
    known, sign = _shares(), curve.direction.sign
    now = float(np.median(curve.values[-_LAST:]))
    first_gap, gap = sign * (float(curve.values[0]) - target), sign * (now - target)
    done = curve.last_step / curve.planned_steps
    if first_gap <= 0 or gap > known["gap_left"] * (1 - done) * first_gap:
        return None
    low, middle, high = (known[f"share_{level}"] * curve.planned_steps for level in ("p10", "p50", "p90"))
    soonest = curve.last_step
    return Quantiles(max(low, soonest), max(middle, soonest), max(high, soonest))
