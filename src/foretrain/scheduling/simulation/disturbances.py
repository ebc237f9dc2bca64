"""What may go otherwise than predicted in a simulation: job times, node failures, spot interruptions, prices.

All draws come from one seed. The time of a job is its prediction times a factor drawn from the interval of
the prediction, one factor for all configurations, since its error lies mostly in the job.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from foretrain.estimates import Quantiles
from foretrain.scheduling.problem import Job
from foretrain.units import DAY, HOUR

_Z90 = 1.2815515655446004  # the 90th percentile of the standard normal distribution


@dataclass(frozen=True, slots=True)
class PriceChange:
    """A new price of a node type from some time on."""

    at_seconds: float
    node_type: str
    usd_per_hour: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbances:
    """What disturbs a simulation; nothing by default."""

    seed: int = 0
    prediction_error: bool = False
    interruptions: bool = False
    failures_per_node_day: float = 0.0
    repair_seconds: float = HOUR
    price_changes: tuple[PriceChange, ...] = ()

    def draws(self) -> Draws:
        """The random numbers of one simulation."""
        return Draws(self, np.random.default_rng(self.seed))


@dataclass(frozen=True, slots=True)
class Draws:
    """Random numbers of one simulation, drawn in its order of events."""

    disturbances: Disturbances
    generator: np.random.Generator

    def pace(self, job: Job) -> float:
        """Actual over predicted time of a job; depends on the job's name, not on the order of jobs."""
        if not self.disturbances.prediction_error:
            return 1.0
        own = np.random.default_rng([self.disturbances.seed, *job.name.encode()])
        return factor_at(job.spread, float(own.standard_normal()))

    def seconds_to_interruption(self, interruptions_per_hour: float) -> float:
        """How long a spot node stays."""
        if not (self.disturbances.interruptions and interruptions_per_hour > 0):
            return math.inf
        return float(self.generator.exponential(HOUR / interruptions_per_hour))

    def seconds_to_failure(self) -> float:
        """How long a node that is switched on works."""
        rate = self.disturbances.failures_per_node_day
        return float(self.generator.exponential(DAY / rate)) if rate > 0 else math.inf


def factor_at(spread: Quantiles, normal: float) -> float:
    """The factor at a point of the standard normal distribution: log-normal to each side of the median."""
    ratio = (spread.p90 / spread.p50) if normal > 0 else (spread.p50 / max(spread.p10, 1e-9 * spread.p50))
    return math.exp(math.log(max(ratio, 1.0)) / _Z90 * normal)
