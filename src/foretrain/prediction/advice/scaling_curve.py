"""How a step scales with the number of devices: efficiency, the knee, and the best number.

    efficiency(n) = samples per second on n devices / (n · samples per second on one)

The knee is the last number up to which every doubling brought at least three quarters of what it could; the
best number is the one that trains most samples per second, the fewest of equals. Numbers of devices whose
memory is too small for the step are no candidates, unless all are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

WORTH_DOUBLING = 1.5
"""Three quarters of the factor two that a doubling could bring."""
_EQUAL = 0.99


@dataclass(frozen=True, slots=True)
class ScalingPoint:
    """A number of devices. Efficiency is against the fewest devices of the curve, which may not be one."""

    devices: int
    placement: str
    global_batch: int
    step_seconds: float
    samples_per_second: float
    efficiency: float
    exposed_share: float
    fits: bool


@dataclass(frozen=True, slots=True)
class ScalingCurve:
    """Points by number of devices, the last one worth doubling to, and the one that trains most."""

    points: tuple[ScalingPoint, ...]
    is_batch_fixed: bool
    knee: int
    best: int


Measure = Callable[[int], ScalingPoint | None]


def scaling_curve(counts: Sequence[int], measure: Measure, is_batch_fixed: bool) -> ScalingCurve | None:
    """The curve through some numbers of devices; `measure` returns None where a number is impossible."""
    points = tuple(point for point in map(measure, counts) if point is not None)
    if not points:
        return None
    possible = [point for point in points if point.fits] or list(points)
    most = max(point.samples_per_second for point in possible)
    best = next(point.devices for point in possible if point.samples_per_second >= _EQUAL * most)
    return ScalingCurve(points, is_batch_fixed, _knee(possible), best)


def _knee(points: Sequence[ScalingPoint]) -> int:
    knee = points[0].devices
    for before, point in pairwise(points):
        gain = point.samples_per_second / before.samples_per_second
        if gain < WORTH_DOUBLING ** math.log2(point.devices / before.devices):
            break
        knee = point.devices
    return knee
