"""Stragglers: how long n workers take that wait for the slowest of them at every step.

With step times of mean m and coefficient of variation cv, log-normal and independent between workers,
E[max] = ∫ x dF(x)^n and the quantile p of the maximum is the quantile p^(1/n) of one worker. The measured cv
must be that *between* workers of the same step: what slows all of them together does not add waiting.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrain.errors import InvalidRequest
from foretrain.prediction.strategies.worker_times import (
    WorkerTimes,
    expected_order_statistic,
    score_of_maximum,
)


@dataclass(frozen=True)
class Slowest:
    """Time of the slowest worker of a step: expected, and what it stays above and below 9 times of 10."""

    seconds: float
    p10: float
    p90: float


def expected_maximum(mean: float, cv: float, workers: int) -> float:
    """Expected time of the slowest of `workers` log-normal workers."""
    return expected_order_statistic(WorkerTimes(mean, cv), workers, workers)


def slowest_of(times: WorkerTimes, workers: int) -> Slowest:
    """The slowest of `workers` workers, with its spread."""
    if workers < 1:
        raise InvalidRequest(f"there is no slowest of {workers} workers")
    scores = np.array([score_of_maximum(share, workers) for share in (0.1, 0.9)])
    p10, p90 = times.at_scores(scores).tolist()
    return Slowest(expected_order_statistic(times, workers, workers), p10, p90)
