"""When n workers that start again at once have together finished K pieces of work.

A worker has finished r pieces by time t with probability A_r(t) = P(X_1 + ... + X_r <= t); the pieces of all
add up, so P(T_K > t) = P(N_1(t) + ... + N_n(t) < K) and E[T_K] = ∫ P(T_K > t) dt. Evaluated on a lattice of
times, with Fourier transforms for the sums over r and over workers. In the long run T_K → K E[X] / n.

Reference: D. Cox, "Renewal Theory", 1962, chapters 3 and 6 (pooled renewal processes).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from foretrain.prediction.strategies.worker_times import Distribution, WorkerTimes

Floats = NDArray[np.float64]

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
