"""How long workers take that do the same work: a distribution, its order statistics, and its renewals.

Each distribution is a function of a standard normal score z, so one quadrature serves all:

    E[X_(k:n)] = ∫ x(z) · n! / ((k-1)! (n-k)!) · Φ(z)^(k-1) · (1 - Φ(z))^(n-k) · φ(z) dz

* log-normal: x = exp(μ + σ z), σ² = ln(1 + cv²), μ = ln(mean) - σ²/2;
* normal: x = mean + sd z; only where it is all but never negative (cv <= 1/3);
* shifted exponential: x = Δ - ln(1 - Φ(z)) / μ, 1/μ = cv · mean, Δ = mean - 1/μ (cv <= 1), the model of
  S. Dutta et al., "Slow and Stale Gradients Can Win the Race", AISTATS 2018. Here in closed form
  E[X_(k:n)] = Δ + (H_n - H_(n-k)) / μ with H the harmonic numbers.

Reference for order statistics: H. David, H. Nagaraja, "Order Statistics", 3rd ed., 2003, section 3.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from foretrain.errors import InvalidRequest

Floats = NDArray[np.float64]

_SCORES = np.arange(-14.0, 14.0, 0.01)
_POINTS = 801
_NEGLIGIBLE = 60.0
"""Densities e^60 times smaller than the peak do not count."""


class Distribution(StrEnum):
    """The shape of the distribution of worker times."""

    LOG_NORMAL = "log-normal"
    NORMAL = "normal"
    SHIFTED_EXPONENTIAL = "shifted-exponential"


@dataclass(frozen=True)
class WorkerTimes:
    """Independent times of workers doing the same work: mean and coefficient of variation."""

    mean: float
    cv: float = 0.0
    distribution: Distribution = Distribution.LOG_NORMAL

    def __post_init__(self) -> None:
        if not (self.mean > 0 and math.isfinite(self.mean) and self.cv >= 0 and math.isfinite(self.cv)):
            raise InvalidRequest(f"worker times need a mean > 0 and a cv >= 0, not {self.mean} and {self.cv}")
        most = {Distribution.NORMAL: 1 / 3, Distribution.SHIFTED_EXPONENTIAL: 1.0}.get(self.distribution)
        if most is not None and self.cv > most:
            raise InvalidRequest(
                f"{self.distribution} worker times have a coefficient of variation of at most {most:.2g}, "
                f"not {self.cv:g}; use log-normal ones"
            )

    @property
    def sigma(self) -> float:
        """Spread of the logarithm of log-normal times."""
        return math.sqrt(math.log1p(self.cv**2))

    @property
    def shift(self) -> float:
        """Least time of shifted-exponential workers, Δ."""
        return self.mean * (1 - self.cv)

    def at_scores(self, scores: Floats) -> Floats:
        """The times at standard normal scores."""
        if self.distribution is Distribution.NORMAL:
            return self.mean * (1 + self.cv * scores)
        if self.distribution is Distribution.LOG_NORMAL:
            return self.mean * np.exp(self.sigma * scores - self.sigma**2 / 2)
        return self.shift - self.mean * self.cv * log_normal_share(-scores)

    def share_below(self, times: Floats) -> Floats:
        """The cumulative distribution."""
        if self.cv == 0:
            return (times >= self.mean).astype(np.float64)
        if self.distribution is Distribution.SHIFTED_EXPONENTIAL:
            return -np.expm1(-np.maximum(times - self.shift, 0.0) / (self.mean * self.cv))
        if self.distribution is Distribution.NORMAL:
            return np.exp(log_normal_share((times / self.mean - 1) / self.cv))
        positive = np.maximum(times, 1e-300 * self.mean)
        scores = (np.log(positive / self.mean) + self.sigma**2 / 2) / self.sigma
        return np.exp(log_normal_share(np.maximum(scores, -30.0)))

    def drawn(self, generator: np.random.Generator, size: tuple[int, ...]) -> Floats:
        """Random times."""
        if self.distribution is Distribution.SHIFTED_EXPONENTIAL:
            return self.shift + self.mean * self.cv * generator.standard_exponential(size)
        return self.at_scores(generator.standard_normal(size))


def log_normal_share(scores: Floats) -> Floats:
    """ln Φ(z), exact in both tails."""
    tails = np.array([math.erfc(abs(score) / math.sqrt(2)) / 2 for score in scores.ravel().tolist()])
    tails = tails.reshape(scores.shape)
    logs = np.where(scores < 0, np.log(np.maximum(tails, 1e-300)), np.log1p(-tails))
    return np.asarray(logs, dtype=np.float64)


def expected_order_statistic(times: WorkerTimes, k: int, workers: int) -> float:
    """Expected time of the k-th fastest of `workers` workers."""
    if not 1 <= k <= workers:
        raise InvalidRequest(f"there is no {k}-th of {workers} workers; k goes from 1 to {workers}")
    if times.cv == 0:
        return times.mean
    if times.distribution is Distribution.SHIFTED_EXPONENTIAL:
        harmonic = math.fsum(1 / waiting for waiting in range(workers - k + 1, workers + 1))
        return times.shift + times.mean * times.cv * harmonic
    scores, weights = _order_weights(k, workers)
    return float(times.at_scores(scores) @ weights)


@lru_cache(maxsize=1)
def _shares() -> tuple[Floats, Floats]:
    return log_normal_share(_SCORES), log_normal_share(-_SCORES)


@lru_cache(maxsize=512)
def _order_weights(k: int, workers: int) -> tuple[Floats, Floats]:
    """Scores and weights (summing to 1) of the k-th order statistic: a trapezoid over where its density lies.

    The density vanishes with all derivatives at both ends, so the rule converges faster than any power.
    """

    def density(scores: Floats, below: Floats, above: Floats) -> Floats:
        return (k - 1) * below + (workers - k) * above - scores**2 / 2

    coarse = density(_SCORES, *_shares())
    lies = np.flatnonzero(coarse > coarse.max() - _NEGLIGIBLE)
    scores = np.linspace(_SCORES[max(lies[0] - 1, 0)], _SCORES[min(lies[-1] + 1, len(_SCORES) - 1)], _POINTS)
    fine = density(scores, log_normal_share(scores), log_normal_share(-scores))
    weights = np.exp(fine - fine.max())
    return scores, weights / weights.sum()


def score_of_maximum(probability: float, workers: int) -> float:
    """The score the largest of n stays below with the given probability: Φ(z)^n = p."""
    return -NormalDist().inv_cdf(-math.expm1(math.log(probability) / workers))
