"""Stragglers: how long n workers take together when the times of each vary from step to step.

Worker times are independent and identically distributed (`WorkerTimes`). The coefficient of variation cv is
that *between* workers of one step: what slows all workers together adds no waiting.

**Synchronous steps** wait for the slowest worker, or for the k-th of n. Each distribution is a function of a
standard normal score z, so one quadrature serves all:

    E[X_(k:n)] = ∫ x(z) · n! / ((k-1)! (n-k)!) · Φ(z)^(k-1) · (1 - Φ(z))^(n-k) · φ(z) dz

* log-normal: x = exp(μ + σ z), σ² = ln(1 + cv²), μ = ln(mean) - σ²/2;
* normal: x = mean + sd z, limited to cv <= 1/3, where it is almost never negative;
* shifted exponential: x = Δ - ln(1 - Φ(z)) / μ, 1/μ = cv · mean, Δ = mean - 1/μ (cv <= 1), the model of
  S. Dutta et al., "Slow and Stale Gradients Can Win the Race", AISTATS 2018. In closed form
  E[X_(k:n)] = Δ + (H_n - H_(n-k)) / μ with H the harmonic numbers.

The quantile p of the maximum of n is the quantile p^(1/n) of one worker. Reference: H. David, H. Nagaraja,
"Order Statistics", 3rd ed., 2003, section 3.1.

**K-asynchronous updates** (`simulate_first_k`): the server takes the first K workers each time, while the
others continue. Only exponential times have a closed form, since workers that continue have a head start;
E[X_(K:n)] is an upper bound for distributions of the type "new longer than used" (Dutta et al.). The time is
simulated: many replicas with a fixed seed, after a warm-up, with the standard error over the replicas.

**K-batch updates** (`expected_completion`): n workers that restart at once have together finished K pieces.
A worker has finished r pieces by time t with probability A_r(t) = P(X_1 + ... + X_r <= t). The counts of all
workers add up, so P(T_K > t) = P(N_1(t) + ... + N_n(t) < K) and E[T_K] = ∫ P(T_K > t) dt. Evaluated on a
lattice of times, with Fourier transforms for the sums over r and over workers; asymptotically
T_K → K E[X] / n. Reference: D. Cox, "Renewal Theory", 1962, chapters 3 and 6 (pooled renewal processes).

**The default cv** of GPUs (`default_jitter`) is fitted to the growth of public runs from two to eight GPUs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from foretrain.errors import InvalidRequest
from foretrain.estimates import Estimate, Part
from foretrain.facts.calibrations import calibration_content
from foretrain.facts.devices import Device

Floats = NDArray[np.float64]

_SCORES = np.arange(-14.0, 14.0, 0.01)  # normal scores: e^(-14²/2) is below `_NEGLIGIBLE`
_POINTS = 801
_NEGLIGIBLE = 60.0
"""Densities below e^-60 of the peak are ignored."""


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
            raise InvalidRequest(f"worker times need a mean > 0 and a cv >= 0, got {self.mean} and {self.cv}")
        most = {Distribution.NORMAL: 1 / 3, Distribution.SHIFTED_EXPONENTIAL: 1.0}.get(self.distribution)
        if most is not None and self.cv > most:
            raise InvalidRequest(
                f"{self.distribution} worker times need a coefficient of variation of at most {most:.2g}, "
                f"got {self.cv:g}; use log-normal times"
            )

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm of log-normal times."""
        return math.sqrt(math.log1p(self.cv**2))

    @property
    def shift(self) -> float:
        """Minimum time of shifted-exponential workers, Δ."""
        return self.mean * (1 - self.cv)

    def at_scores(self, scores: Floats) -> Floats:
        """The times at standard normal scores."""
        if self.distribution is Distribution.NORMAL:
            return self.mean * (1 + self.cv * scores)
        if self.distribution is Distribution.LOG_NORMAL:
            return self.mean * np.exp(self.sigma * scores - self.sigma**2 / 2)
        return self.shift - self.mean * self.cv * log_normal_share(-scores)

    def share_below(self, times: Floats) -> Floats:
        """The cumulative distribution function."""
        if self.cv == 0:
            return (times >= self.mean).astype(np.float64)
        if self.distribution is Distribution.SHIFTED_EXPONENTIAL:
            return -np.expm1(-np.maximum(times - self.shift, 0.0) / (self.mean * self.cv))
        if self.distribution is Distribution.NORMAL:
            return np.exp(log_normal_share((times / self.mean - 1) / self.cv))
        positive = np.maximum(times, 1e-300 * self.mean)
        scores = (np.log(positive / self.mean) + self.sigma**2 / 2) / self.sigma
        return np.exp(log_normal_share(np.maximum(scores, -30.0)))

    def draw(self, generator: np.random.Generator, size: tuple[int, ...]) -> Floats:
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
        raise InvalidRequest(f"k must be between 1 and the number of workers ({workers}), got {k}")
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
    """Scores and weights (summing to 1) of the k-th order statistic: a trapezoidal rule over its support.

    The density vanishes with all derivatives at both ends, so the rule converges faster than any power.
    """

    def density(scores: Floats, below: Floats, above: Floats) -> Floats:
        return (k - 1) * below + (workers - k) * above - scores**2 / 2

    coarse = density(_SCORES, *_shares())
    support = np.flatnonzero(coarse > coarse.max() - _NEGLIGIBLE)
    low, high = max(support[0] - 1, 0), min(support[-1] + 1, len(_SCORES) - 1)
    scores = np.linspace(_SCORES[low], _SCORES[high], _POINTS)
    fine = density(scores, log_normal_share(scores), log_normal_share(-scores))
    weights = np.exp(fine - fine.max())
    return scores, weights / weights.sum()


def score_of_maximum(probability: float, workers: int) -> float:
    """The score z that the maximum of n stays below with probability p: Φ(z)^n = p."""
    return -NormalDist().inv_cdf(-math.expm1(math.log(probability) / workers))


def expected_maximum(mean: float, cv: float, workers: int) -> float:
    """Expected time of the slowest of `workers` log-normal workers."""
    return expected_order_statistic(WorkerTimes(mean, cv), workers, workers)


def slowest_of(times: WorkerTimes, workers: int) -> tuple[float, float, float]:
    """The time of the slowest of `workers` workers: its expected value, 10th and 90th percentile."""
    if workers < 1:
        raise InvalidRequest(f"workers must be at least 1, got {workers}")
    scores = np.array([score_of_maximum(share, workers) for share in (0.1, 0.9)])
    p10, p90 = times.at_scores(scores).tolist()
    return expected_order_statistic(times, workers, workers), p10, p90


_REPLICAS = 64
_GRADIENTS = 300_000
_LEAST_UPDATES = 200


@lru_cache(maxsize=256)
def simulate_first_k(
    times: WorkerTimes, k: int, workers: int, busy_seconds: float = 0.0, overhead_seconds: float = 0.0
) -> tuple[float, float]:
    """Average time between updates with K of `workers` workers, and its standard error over the replicas.

    An update keeps the server busy for `busy_seconds`; its K workers restart after that and an overhead.
    """
    # A fixed seed: the same request has the same answer.
    generator = np.random.default_rng(0)
    updates = max(_LEAST_UPDATES, math.ceil(_GRADIENTS / (_REPLICAS * k)))
    # At the start all workers begin together; the average is of updates after they have drifted apart.
    warm_up = max(updates // 4, math.ceil(4 * workers / k))
    ready = times.draw(generator, (_REPLICAS, workers))
    free, began = np.zeros(_REPLICAS), np.zeros(_REPLICAS)
    for update in range(warm_up + updates):
        if update == warm_up:
            began = free
        first = np.argpartition(ready, k - 1, axis=1)[:, :k]
        latest = np.take_along_axis(ready, first, axis=1).max(axis=1)
        free = np.maximum(latest, free) + busy_seconds
        next_ready = free[:, None] + overhead_seconds + times.draw(generator, (_REPLICAS, k))
        np.put_along_axis(ready, first, next_ready, axis=1)
    each = (free - began) / updates
    return float(each.mean()), float(each.std(ddof=1) / math.sqrt(_REPLICAS))


_LATTICE = 2048  # a power of two, for the FFTs
_LEFT_OVER = 1e-7
"""The lattice is extended while the probability that T_K lies beyond it exceeds this."""


def expected_completion(times: WorkerTimes, k: int, workers: int) -> float:
    """Expected time until K pieces are finished, all workers starting at 0.

    Exponential workers: K / (n μ), since they are memoryless. One worker: K · mean.
    """
    rounds = math.ceil(k / workers)
    if times.cv == 0:
        return rounds * times.mean
    if workers == 1:
        return k * times.mean
    if times.distribution is Distribution.SHIFTED_EXPONENTIAL and times.shift == 0:
        return k * times.mean / workers
    horizon = times.mean * (rounds + 6 * times.cv * math.sqrt(rounds))
    while True:
        step = horizon / _LATTICE
        not_yet = _probability_of_fewer(_convolve_finishing(times, k, step), k, workers)
        if not_yet[-1] < _LEFT_OVER:
            return float(not_yet.sum() * step)
        horizon *= 1.5


def _convolve_finishing(times: WorkerTimes, k: int, step: float) -> list[Floats]:
    """A_r on the lattice for r = 1, 2, ..., K, up to the first that vanishes."""
    edges = np.asarray((np.arange(_LATTICE + 1) - 0.5) * step, dtype=np.float64)
    mass = np.diff(times.share_below(edges))
    transform = np.fft.rfft(mass, 2 * _LATTICE)
    shares: list[Floats] = []
    current = mass
    while len(shares) < k:
        share = np.cumsum(current)
        if share[-1] < 1e-14:
            break
        shares.append(share)
        current = np.fft.irfft(np.fft.rfft(current, 2 * _LATTICE) * transform, 2 * _LATTICE)[:_LATTICE]
    return shares


def _probability_of_fewer(finished: list[Floats], k: int, workers: int) -> Floats:
    """P(fewer than K pieces of all workers) at each time: one worker's counts to the power n."""
    shares = np.zeros((_LATTICE, k + 1))
    shares[:, 0] = 1.0
    for count, share in enumerate(finished[:k], start=1):
        shares[:, count] = share
    counts = -np.diff(shares, axis=1)
    result: Floats | None = None
    power, left = counts, workers
    while left:
        if left & 1:
            result = power if result is None else _times(result, power)
        left >>= 1
        if left:
            power = _times(power, power)
    assert result is not None
    return np.asarray(np.clip(result.sum(axis=1), 0.0, 1.0), dtype=np.float64)


def _times(first: Floats, second: Floats) -> Floats:
    """Product of polynomials row by row, truncated to the terms of the factors."""
    terms = first.shape[1]
    size = 2 * terms
    product = np.fft.rfft(first, size, axis=1) * np.fft.rfft(second, size, axis=1)
    return np.asarray(np.fft.irfft(product, size, axis=1)[:, :terms], dtype=np.float64)


FILE = "jitter.json"


def default_jitter(device: Device) -> float:
    """The coefficient of variation of step times between devices; 0 for CPUs, which were not measured."""
    return 0.0 if device.is_cpu else _load_fitted()


@cache
def _load_fitted() -> float:
    raw = calibration_content(FILE)
    return float(raw["coefficient_of_variation"])


SLOWEST = "waiting for the slowest device"


@lru_cache(maxsize=1024)
def slowdown(devices: int, jitter: float) -> float:
    """The expected maximum of the devices' step times over their mean."""
    return 1.0 if not jitter or devices == 1 else expected_maximum(1.0, jitter, devices)


def with_slowest(estimate: Estimate, devices: int, jitter: float) -> Estimate:
    """A step with the wait for the slowest of the devices that exchange gradients."""
    if not jitter or devices == 1:
        return estimate
    slowest, p10, p90 = slowest_of(WorkerTimes(estimate.value, jitter), devices)
    waiting = max(0.0, slowest - estimate.value)
    below = min(waiting, max(0.0, slowest - p10))
    part = Part(SLOWEST, waiting, "jitter between devices", below, max(0.0, p90 - slowest))
    return replace(estimate, parts=(*estimate.parts, part))
