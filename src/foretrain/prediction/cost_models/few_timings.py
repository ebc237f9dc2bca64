"""Correction of predictions at other sizes from a few timings of a model on a device.

The logarithm of measured over predicted time is modelled as a random function of the size (batch, samples),
in octaves x above the smallest timed size:

    log(measured / predicted) = level + slope · x + wander(x) + noise

with normal priors: a wide prior of the level, a slope near 0 (the prediction accounts for the growth of a
step), a random walk, and the noise of repeated timings. The posterior at another size corrects the prediction
there and gives its interval. Far from all timings the correction is that of the nearest ones, with a wider
interval. The standard deviations are in `calibrations/few_timings.json`.

Reference: Gaussian-process regression, C. E. Rasmussen and C. K. I. Williams, MIT Press, 2006, chapter 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from foretrain.errors import InvalidRequest
from foretrain.estimates import Quantiles
from foretrain.facts.calibrations import calibration_content
from foretrain.prediction.operators.listing import Floats

FILE = "few_timings.json"
_P90 = 1.2815515655446004
"""Standard deviations from the median of a normal distribution to its 90th percentile."""


@dataclass(frozen=True, slots=True)
class TimedSize:
    """Predicted and measured time of a step of one size."""

    size: float
    predicted_seconds: float
    measured_seconds: float

    def __post_init__(self) -> None:
        for name in ("size", "predicted_seconds", "measured_seconds"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InvalidRequest(f"{name} of a timing must be above 0, got {value}")


@dataclass(frozen=True, slots=True)
class Spreads:
    """Standard deviations of the terms of log(measured / predicted); `slope` and `wander` per octave."""

    level: float
    slope: float
    wander: float
    noise: float


@cache
def spreads() -> Spreads:
    """The shipped calibration."""
    raw = calibration_content(FILE)
    return Spreads(**raw["spreads"])


def corrected(
    timings: Sequence[TimedSize], size: float, predicted_seconds: float, known: Spreads | None = None
) -> Quantiles:
    """The time of a step of any size, from its prediction and the timings."""
    target = TimedSize(size, predicted_seconds, predicted_seconds)
    if not timings:
        raise InvalidRequest("a correction requires at least one timing")
    known = known or spreads()
    least = min(timing.size for timing in timings)
    octaves = np.array([math.log2(timing.size / least) for timing in timings])
    place = np.array([math.log2(target.size / least)])
    off = np.array([math.log(timing.measured_seconds / timing.predicted_seconds) for timing in timings])
    seen = _covariance(octaves, octaves, known) + known.noise**2 * np.eye(len(timings))
    across = _covariance(place, octaves, known)
    middle = float((across @ np.linalg.solve(seen, off))[0])
    left = _covariance(place, place, known) - across @ np.linalg.solve(seen, across.T)
    deviation = _P90 * math.sqrt(max(float(left[0, 0]), 0.0) + known.noise**2)
    p50 = predicted_seconds * math.exp(middle)
    return Quantiles(p50 * math.exp(-deviation), p50, p50 * math.exp(deviation))


def _covariance(a: Floats, b: Floats, known: Spreads) -> Floats:
    """Covariance of the corrections at some octaves; the random walk starts at the smallest size."""
    one, other = a[:, None], b[None, :]
    same_side = one * other > 0
    walked = np.where(same_side, np.minimum(np.abs(one), np.abs(other)), 0.0)
    covariance: Floats = known.level**2 + known.slope**2 * one * other + known.wander**2 * walked
    return covariance
