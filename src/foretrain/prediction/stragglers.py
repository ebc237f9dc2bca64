"""Stragglers.

How long workers take that do the same work: a distribution, its order statistics, and its renewals.

Each distribution is a function of a standard normal score z, so one quadrature serves all:

    E[X_(k:n)] = ∫ x(z) · n! / ((k-1)! (n-k)!) · Φ(z)^(k-1) · (1 - Φ(z))^(n-k) · φ(z) dz

* log-normal: x = exp(μ + σ z), σ² = ln(1 + cv²), μ = ln(mean) - σ²/2;
* normal: x = mean + sd z; only where it is all but never negative (cv <= 1/3);
* shifted exponential: x = Δ - ln(1 - Φ(z)) / μ, 1/μ = cv · mean, Δ = mean - 1/μ (cv <= 1), the model of
  S. Dutta et al., "Slow and Stale Gradients Can Win the Race", AISTATS 2018. Here in closed form
  E[X_(k:n)] = Δ + (H_n - H_(n-k)) / μ with H the harmonic numbers.

Reference for order statistics: H. David, H. Nagaraja, "Order Statistics", 3rd ed., 2003, section 3.1.

Stragglers: how long n workers take that wait for the slowest of them at every step.

With step times of mean m and coefficient of variation cv, log-normal and independent between workers,
E[max] = ∫ x dF(x)^n and the quantile p of the maximum is the quantile p^(1/n) of one worker. The measured cv
must be that *between* workers of the same step: what slows all of them together does not add waiting.

K-asynchronous updates: the server takes the first K workers each time, while the others go on.

There is no closed form but for exponential times, since workers that go on have a head start: E[X_(K:n)] is
an upper bound where new takes longer than used (S. Dutta et al., "Slow and Stale Gradients Can Win the Race",
AISTATS 2018). So it is simulated: many replicas side by side, always from the same seed, after a warm-up,
with the standard error over the replicas.

When n workers that start again at once have together finished K pieces of work.

A worker has finished r pieces by time t with probability A_r(t) = P(X_1 + ... + X_r <= t); the pieces of all
add up, so P(T_K > t) = P(N_1(t) + ... + N_n(t) < K) and E[T_K] = ∫ P(T_K > t) dt. Evaluated on a lattice of
times, with Fourier transforms for the sums over r and over workers. In the long run T_K → K E[X] / n.

Reference: D. Cox, "Renewal Theory", 1962, chapters 3 and 6 (pooled renewal processes).

How much step times vary between devices alike, where nobody says it: fitted to public runs.

Every step waits for its slowest device (`stragglers`), so n devices take longer than the mean of one by the
expected maximum of n; runs of many networks on two to eight GPUs, told from one, teach by how much.

Waiting for the slowest: what devices that vary from step to step add to a step they all take part in.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from foretrain.errors import InvalidRequest
from foretrain.estimates import Estimate, Part
from foretrain.facts.devices import Device
from foretrain.facts.sheets import data_root

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


_REPLICAS = 64
_GRADIENTS = 300_000
_LEAST_UPDATES = 200


@dataclass(frozen=True)
class Simulated:
    """A mean over replicas."""

    seconds: float
    standard_error: float


@lru_cache(maxsize=256)
def simulated_first_k(
    times: WorkerTimes, k: int, workers: int, busy_seconds: float = 0.0, overhead_seconds: float = 0.0
) -> Simulated:
    """Average time between updates with K of `workers` workers.

    An update keeps the server busy for `busy_seconds`; its K workers start again after it and an overhead.
    """
    generator = np.random.default_rng(0)
    updates = max(_LEAST_UPDATES, math.ceil(_GRADIENTS / (_REPLICAS * k)))
    warm_up = max(updates // 4, math.ceil(4 * workers / k))
    ready = times.drawn(generator, (_REPLICAS, workers))
    free, began = np.zeros(_REPLICAS), np.zeros(_REPLICAS)
    for update in range(warm_up + updates):
        if update == warm_up:
            began = free
        first = np.argpartition(ready, k - 1, axis=1)[:, :k]
        latest = np.take_along_axis(ready, first, axis=1).max(axis=1)
        free = np.maximum(latest, free) + busy_seconds
        again = free[:, None] + overhead_seconds + times.drawn(generator, (_REPLICAS, k))
        np.put_along_axis(ready, first, again, axis=1)
    each = (free - began) / updates
    return Simulated(float(each.mean()), float(each.std(ddof=1) / math.sqrt(_REPLICAS)))


_LATTICE = 2048
_LEFT_OVER = 1e-7
"""Probability that T_K lies beyond the lattice which makes it too short."""


def expected_completion(times: WorkerTimes, k: int, workers: int) -> float:
    """Expected time until K pieces are finished, all workers starting afresh at 0.

    Exponential workers: K / (n μ), since they do not age. One worker: K · mean.
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
        not_yet = _probability_of_fewer(_finished(times, k, step), k, workers)
        if not_yet[-1] < _LEFT_OVER:
            return float(not_yet.sum() * step)
        horizon *= 1.5


def _finished(times: WorkerTimes, k: int, step: float) -> list[Floats]:
    """A_r on the lattice for r = 1, 2, ..., K, as far as they are not nil."""
    edges = np.asarray((np.arange(_LATTICE + 1) - 0.5) * step, dtype=np.float64)
    mass = np.diff(times.share_below(edges))
    transform = np.fft.rfft(mass, 2 * _LATTICE)
    found: list[Floats] = []
    current = mass
    while len(found) < k:
        share = np.cumsum(current)
        if share[-1] < 1e-14:
            break
        found.append(share)
        current = np.fft.irfft(np.fft.rfft(current, 2 * _LATTICE) * transform, 2 * _LATTICE)[:_LATTICE]
    return found


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
    """Product of polynomials row by row, without the powers that are too high to matter."""
    terms = first.shape[1]
    size = 2 * terms
    product = np.fft.rfft(first, size, axis=1) * np.fft.rfft(second, size, axis=1)
    return np.asarray(np.fft.irfft(product, size, axis=1)[:, :terms], dtype=np.float64)


FILE = "jitter.json"
_CPU = "cpu"


def default_jitter(device: Device) -> float:
    """The coefficient of variation between devices of one step; none is known of CPUs."""
    return 0.0 if device.kind == _CPU else _fitted()


@cache
def _fitted() -> float:
    raw = json.loads((data_root() / "calibrations" / FILE).read_text(encoding="utf-8"))
    return float(raw["coefficient_of_variation"])


SLOWEST = "waiting for the slowest device"


@lru_cache(maxsize=1024)
def slowdown(devices: int, jitter: float) -> float:
    """The expected maximum of so many devices over their mean."""
    return 1.0 if not jitter or devices == 1 else expected_maximum(1.0, jitter, devices)


def with_slowest(estimate: Estimate, devices: int, jitter: float) -> Estimate:
    """Every step waits for the slowest of the devices that exchange gradients."""
    if not jitter or devices == 1:
        return estimate
    slowest = slowest_of(WorkerTimes(estimate.value, jitter), devices)
    waits = max(0.0, slowest.seconds - estimate.value)
    below = min(waits, max(0.0, slowest.seconds - slowest.p10))
    part = Part(SLOWEST, waits, "jitter between devices", below, max(0.0, slowest.p90 - slowest.seconds))
    return replace(estimate, parts=(*estimate.parts, part))
