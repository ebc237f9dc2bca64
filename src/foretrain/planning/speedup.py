"""Is the faster machine worth its price? Speed-up per fold of cost.

Reference: K. B. Sanghvi, "Prediction & Cost Analysis of Distributed Deep Learning Jobs in a Multi-GPU
Setting", section VII (the Δ of its figure 7) and table I.
"""

from __future__ import annotations

from dataclasses import dataclass

from foretrain.errors import InvalidRequest
from foretrain.units import HOUR


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
