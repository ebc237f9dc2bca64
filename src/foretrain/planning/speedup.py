"""Speed-up.

Billed time of many rentals at once: `facts.billing.billed_seconds` over arrays.

Is the faster machine worth its price? Speed-up per fold of cost.

Reference: K. B. Sanghvi, "Prediction & Cost Analysis of Distributed Deep Learning Jobs in a Multi-GPU
Environment", section VII (the Δ of its figure 7) and table I.

A job's time and cost by the epoch, as the seed counts them, and how far its epochs were off.

    cost = epochs · cost of an epoch          time to accuracy = epochs · time of an epoch

Reference: K. B. Sanghvi, "Prediction & Cost Analysis of Distributed Deep Learning Jobs in a Multi-GPU
Environment", sections V and VII, table I.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrain.convergence.curves import Floats
from foretrain.errors import InvalidRequest
from foretrain.facts.billing import ROUNDING_DIGITS
from foretrain.units import HOUR

ROUNDING_SLACK = 1e-6
"""Units are counted to a millionth, as in `facts.billing`, so a bill may fall short by half of one."""


def billed_seconds_each(seconds: Floats, granularity: Floats, minimum: Floats) -> Floats:
    """⌈max(t, minimum) / granularity⌉ · granularity; max(t, minimum) without granularity; 0 for no time."""
    charged = np.maximum(seconds, minimum)
    has_units = granularity > 0
    unit = np.where(has_units, granularity, 1.0)
    rounded = np.ceil(np.round(charged / unit, ROUNDING_DIGITS)) * unit
    return np.asarray(np.where(seconds == 0, 0.0, np.where(has_units, rounded, charged)), dtype=float)


@dataclass(frozen=True, slots=True)
class TimeAndCost:
    """What the same piece of work (an epoch, a job) takes on one offer."""

    seconds: float
    usd: float

    def __post_init__(self) -> None:
        if not (self.seconds > 0 and self.usd > 0):
            raise InvalidRequest(f"time and cost must be above 0, got {self.seconds} s and {self.usd} USD")


def at_hourly_price(seconds: float, usd_per_hour: float) -> TimeAndCost:
    """The cost of `seconds` of work at an hourly price, billed exactly."""
    return TimeAndCost(seconds, seconds / HOUR * usd_per_hour)


def speedup_per_fold_of_cost(baseline: TimeAndCost, candidate: TimeAndCost) -> float:
    """Δ = (t_baseline / t_candidate) / (cost_candidate / cost_baseline).

    Above 1 the candidate buys more speed than it costs; at 1 the trade is even; a candidate that is both
    faster and cheaper scores above its own speed-up.
    """
    speedup = baseline.seconds / candidate.seconds
    fold_of_cost = candidate.usd / baseline.usd
    return speedup / fold_of_cost


def job_by_epochs(epochs: float, epoch: TimeAndCost) -> TimeAndCost:
    """The whole job: so many times an epoch's time (to reach the accuracy) and its cost."""
    if not epochs > 0:
        raise InvalidRequest(f"{epochs:g} epochs: give more than 0")
    return TimeAndCost(epochs * epoch.seconds, epochs * epoch.usd)


def speedup(one_device_seconds: float, all_devices_seconds: float) -> float:
    """Time on one device over time on all of them; the seed calls this ratio "scaling efficiency"."""
    if not (one_device_seconds > 0 and all_devices_seconds > 0):
        raise InvalidRequest(
            f"times must be above 0, got {one_device_seconds:g} s and {all_devices_seconds:g} s"
        )
    return one_device_seconds / all_devices_seconds


def scaling_efficiency(one_device_seconds: float, all_devices_seconds: float, devices: int) -> float:
    """The speed-up as a share of what so many devices would reach at best: 1 is linear scaling."""
    if devices < 1:
        raise InvalidRequest(f"{devices} devices: give at least 1")
    return speedup(one_device_seconds, all_devices_seconds) / devices


def relative_error(predicted: float, actual: float) -> float:
    """|predicted - actual| / actual: 94 epochs against 25 are 2.76, or 276 %."""
    if not actual > 0:
        raise InvalidRequest(f"an error is relative to something above 0, not {actual:g}")
    return abs(predicted - actual) / actual
