"""Speed-up, scaling efficiency, and speed-up per fold of cost: is the faster machine worth its price?

Reference: K. B. Sanghvi, "Prediction & Cost Analysis of Distributed Deep Learning Jobs in a Multi-GPU
Environment", sections V and VII (the Δ of its figure 7), table I.
"""

from __future__ import annotations

from dataclasses import dataclass

from foretrain.errors import InvalidRequest
from foretrain.units import HOUR


@dataclass(frozen=True, slots=True)
class TimeAndCost:
    """Time and cost of the same work (an epoch, a job) on one offer."""

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


def speedup(one_device_seconds: float, all_devices_seconds: float) -> float:
    """Time on one device over time on all; the reference calls this ratio "scaling efficiency"."""
    if not (one_device_seconds > 0 and all_devices_seconds > 0):
        raise InvalidRequest(
            f"times must be above 0, got {one_device_seconds:g} s and {all_devices_seconds:g} s"
        )
    return one_device_seconds / all_devices_seconds


def scaling_efficiency(one_device_seconds: float, all_devices_seconds: float, devices: int) -> float:
    """The speed-up per device: 1 is linear scaling."""
    if devices < 1:
        raise InvalidRequest(f"scaling needs at least 1 device, got {devices}")
    return speedup(one_device_seconds, all_devices_seconds) / devices
