"""Whether a run is healthy: still improving, or diverged, diverging, overfitting or getting worse."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from foretrain.convergence.curves import Curve
from foretrain.ties import ROUNDING

_HELD_OUT = re.compile(r"val|eval|test|dev|held", re.I)
_RECENT = 0.75
"""A best value within this last part of the log is no sign of trouble."""
_WINDOWS = 8
_LEAST_WINDOW = 3
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

    A run is getting worse where the median of its last window has lost more than four times its noise, and a
    tenth of the progress made, since the best window, that is not recent, and the last point says the same. A
    window is an eighth of the log: a few bad epochs in a row, as under a high rate, are no divergence.
    On held-out data it is called overfitting.
    """
    if curve.diverged_at is not None:
        return Diagnosis(
            Condition.DIVERGED,
            curve.diverged_at,
            f"the run diverged: {curve.metric} is not finite from step {curve.diverged_at:,.6g} on (best "
            f"{curve.best:.4g} before)",
        )
    healthy = Diagnosis(Condition.IMPROVING, curve.last_step, "")
    width = max(_LEAST_WINDOW, len(curve) // _WINDOWS)
    if len(curve) < 2 * width:
        return healthy
    smooth = np.median(sliding_window_view(curve.values, width), axis=1)
    falling = curve.direction.sign * smooth
    # of values as good as the best the latest counts: a plateau is no loss
    best = int(np.flatnonzero(falling <= falling.min() + ROUNDING * np.abs(falling).max())[-1])
    place = best + width // 2
    if place >= _RECENT * (len(curve) - 1):
        return healthy
    last = min(float(falling[-1]), curve.direction.sign * float(curve.values[-1]))
    lost = last - float(falling[best])
    # from one point to the next: against a running median half of the points would have no noise at all
    jumps = np.diff(curve.values)
    noise = 1.4826 * float(np.median(np.abs(jumps - np.median(jumps)))) / math.sqrt(2)
    progress = float(curve.direction.sign * curve.values[0] - falling[best])
    if lost <= (1 + ROUNDING) * max(_NOISES * noise / math.sqrt(width), _PROGRESS * progress):
        return healthy
    is_held_out = bool(_HELD_OUT.search(curve.metric))
    condition = Condition.OVERFITTING if is_held_out else Condition.DIVERGING
    since = float(curve.steps[place])
    return Diagnosis(
        condition,
        since,
        f"the run is {condition.value}: {curve.metric} was {smooth[best]:.4g} at step {since:,.6g} and has "
        f"become worse since, {smooth[-1]:.4g} now",
    )
