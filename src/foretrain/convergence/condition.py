"""Whether a run is healthy: still improving, or diverged, diverging, overfitting or getting worse."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from foretrain.convergence.curves import Curve, trend
from foretrain.ties import ROUNDING

_HELD_OUT = re.compile(r"val|eval|test|dev|held", re.I)
_RECENT = 0.75
"""A best value within this last part of the log is no sign of trouble."""
_NOISES = 4.0
_PROGRESS = 0.1
"""How much of the progress made has to be lost before a run is called worse."""


class Condition(StrEnum):
    """How a run is doing."""

    IMPROVING = "improving"
    DIVERGED = "diverged"
    DIVERGING = "diverging"
    OVERFITTING = "overfitting"


@dataclass(frozen=True)
class Diagnosis:
    """A condition, the step since which it holds, and a sentence that says so."""

    condition: Condition
    since_step: float
    sentence: str


def diagnose(curve: Curve) -> Diagnosis:
    """The condition of a run from its log.

    A run is getting worse where its trend has lost more than four times the noise, and a tenth of the
    progress made, since its best value, and that value is not recent. On held-out data that is overfitting.
    """
    if curve.diverged_at is not None:
        return Diagnosis(
            Condition.DIVERGED,
            curve.diverged_at,
            f"the run diverged: {curve.metric} is not finite from step {curve.diverged_at:,.6g} on (best "
            f"{curve.best:.4g} before)",
        )
    healthy = Diagnosis(Condition.IMPROVING, curve.last_step, "")
    smooth = trend(curve)
    falling = curve.direction.sign * smooth
    # of values as good as the best the latest counts: a plateau is no loss
    place = int(np.flatnonzero(falling <= falling.min() + ROUNDING * np.abs(falling).max())[-1])
    if place >= _RECENT * (len(falling) - 1):
        return healthy
    lost = float(falling[-1] - falling[place])
    noise = 1.4826 * float(np.median(np.abs(curve.values - smooth)))
    progress = float(falling[0] - falling[place])
    if lost <= (1 + ROUNDING) * max(_NOISES * noise, _PROGRESS * progress):
        return healthy
    is_held_out = bool(_HELD_OUT.search(curve.metric))
    condition = Condition.OVERFITTING if is_held_out else Condition.DIVERGING
    since = float(curve.steps[place])
    return Diagnosis(
        condition,
        since,
        f"the run is {condition.value}: {curve.metric} was {smooth[place]:.4g} at step {since:,.6g} and has "
        f"become worse since, {smooth[-1]:.4g} now",
    )
