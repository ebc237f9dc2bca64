"""Bursts and idle gaps of a resource, as Driple defines them: of measured and of predicted signals.

Two-cluster k-means divides the samples of a resource into burst and idle. Runs of equal samples follow each
other in one of three patterns: I (always idle), BIB (bursts with idle gaps), B (always busy). Three figures
describe a resource: burst amount (mean level within bursts), burst duration and idle duration (mean length of
a burst and of a gap).

Reference: Yang et al., "Prediction of the Resource Consumption of Distributed Deep Learning Systems"
(Driple), Proc. ACM Meas. Anal. Comput. Syst. 6(2), 2022.

Levels of resources over time, as steps of a periodic function, and samples of them as monitors take them.

A signal is `levels[i]` from `edges[i]` to `edges[i + 1]`; its first edge is 0, its last the period. A monitor
reports means between its samples, so a sample is the difference of the integral at two instants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby

import numpy as np

from foretrain.store.runs import Floats, Resource, ResourceSeries

_FEWEST_PERIODS = 5
"""Bursts at the ends of a window are cut off: with five periods most are whole."""


@dataclass(frozen=True, eq=False)
class Signal:
    """The level of a resource over one period."""

    edges: Floats
    levels: Floats

    @property
    def period_seconds(self) -> float:
        """The length of the period."""
        return float(self.edges[-1])

    @property
    def mean(self) -> float:
        """The level averaged over the period."""
        return float(self._integral[-1]) / self.period_seconds if self.period_seconds else 0.0

    @property
    def _integral(self) -> Floats:
        return np.append(0.0, np.cumsum(self.levels * np.diff(self.edges)))

    def amounts(self, instants: Floats) -> Floats:
        """The integral of the level from 0 to each instant, which may lie in later periods."""
        rounds, rest = np.divmod(instants, self.period_seconds)
        amounts: Floats = rounds * self._integral[-1] + np.interp(rest, self.edges, self._integral)
        return amounts

    def sampled(self, resource: Resource, interval_seconds: float) -> ResourceSeries:
        """What a monitor would report: means over `interval_seconds`, for at least five periods."""
        count = int(np.ceil(_FEWEST_PERIODS * self.period_seconds / interval_seconds))
        instants: Floats = interval_seconds * np.arange(count + 1, dtype=np.float64)
        values = np.diff(self.amounts(instants)) / interval_seconds
        return ResourceSeries(resource=resource, worker=0, seconds=instants[1:], values=values)


def constant(level: float, period_seconds: float) -> Signal:
    """A level that does not change."""
    return Signal(np.array([0.0, period_seconds]), np.array([level]))


def stack_spans(spans: Sequence[tuple[float, float, float]], period_seconds: float) -> Signal:
    """Levels of (start, end, amount): each amount is spread evenly over its span, and spans add up."""
    kept = np.array([span for span in spans if span[1] > span[0]], float).reshape(-1, 3)
    starts, ends = kept[:, 0], kept[:, 1]
    rates = kept[:, 2] / (ends - starts)
    edges = np.unique(np.concatenate([[0.0, period_seconds], starts, ends]))
    changes = np.zeros(len(edges))
    np.add.at(changes, np.searchsorted(edges, starts), rates)
    np.add.at(changes, np.searchsorted(edges, ends), -rates)
    levels = np.cumsum(changes)[:-1]
    levels[np.abs(levels) < 1e-9 * np.abs(levels).max(initial=0.0)] = 0.0
    return Signal(edges, levels)


_LEAST_SAMPLES = 4
_LEAST_CONTRAST = 0.1
"""Clusters closer together than this share of the highest sample are one cluster."""
_WEAK_CONTRAST = 0.5
_DISTINCT = 0.8
"""Where clusters are close, they must explain this share of the variance: noise that is spread uniformly
reaches 0.75, normal noise 0.64."""
_SHARE_LEVELS, _CORE_LEVELS, _RATE_LEVELS = (0.05, 0.5), (0.05, 0.25), (10_000.0, 10_000.0)
_LEVELS: Mapping[Resource, tuple[float, float]] = {
    Resource.GPU: _SHARE_LEVELS,
    Resource.GPU_MEMORY_BUSY: _SHARE_LEVELS,
    Resource.CPU: _CORE_LEVELS,
    Resource.MEMORY: (1.0, 1.0),
}
"""A signal that never exceeds the first value is idle background; a constant one at the second is busy."""


class Pattern(StrEnum):
    """How bursts and idle gaps follow each other."""

    IDLE = "I"
    ALTERNATING = "BIB"
    BUSY = "B"


@dataclass(frozen=True, slots=True)
class Span:
    """A burst: from when to when, in seconds since the start of the run."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        """Its duration."""
        return self.end - self.start


@dataclass(frozen=True, kw_only=True)
class Bursts:
    """Bursts of one resource in its own unit. Durations are 0 where the pattern has no burst or no gap."""

    resource: Resource
    label: str
    worker: int
    node: int
    pattern: Pattern
    burst_amount: float
    idle_amount: float
    burst_duration: float
    idle_duration: float
    spans: tuple[Span, ...]


def bursts_of(series: ResourceSeries) -> Bursts | None:
    """The bursts of a series; None without samples.

    The first and the last run may be cut off by the window, so that their lengths count only where there is
    no other run of their kind.
    """
    if not len(series.values):
        return None
    is_burst = _burst_samples(series)
    runs = _runs(_edges(series.seconds), is_burst)
    spans = tuple(span for busy, span in runs if busy)
    return Bursts(
        resource=series.resource,
        label=series.label,
        worker=series.worker,
        node=series.node,
        pattern=_pattern(is_burst),
        burst_amount=_mean(series.values[is_burst]),
        idle_amount=_mean(series.values[~is_burst]),
        burst_duration=_duration(runs, busy=True),
        idle_duration=_duration(runs, busy=False),
        spans=spans,
    )


def within(series: ResourceSeries, window: tuple[float, float] | None) -> ResourceSeries:
    """The samples of a window of time."""
    if window is None:
        return series
    inside = (series.seconds >= window[0]) & (series.seconds <= window[1])
    return replace(series, seconds=series.seconds[inside], values=series.values[inside])


def _burst_samples(series: ResourceSeries) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which samples belong to a burst."""
    values = series.values
    negligible, busy = _LEVELS.get(series.resource, _RATE_LEVELS)
    clusters = _two_clusters(values) if float(values.max()) >= negligible else None
    return np.full(len(values), float(values.mean()) >= busy) if clusters is None else clusters


def _two_clusters(values: Floats) -> np.ndarray[tuple[int], np.dtype[np.bool_]] | None:
    """Whether each sample is in the upper of two clusters; None where there is only one cluster.

    k-means starts from the lowest and the highest sample, so that the result is the same each time.
    """
    low, high = float(values.min()), float(values.max())
    if len(values) < _LEAST_SAMPLES or not high > low:
        return None
    from sklearn.cluster import KMeans

    scaled = ((values - low) / (high - low)).reshape(-1, 1)
    means = KMeans(2, init=np.array([[0.0], [1.0]]), n_init=1).fit(scaled)
    upper = means.labels_ == int(np.argmax(means.cluster_centers_[:, 0]))
    if upper.all() or not upper.any():
        return None
    contrast = float(values[upper].mean() - values[~upper].mean()) / max(abs(high), abs(low))
    explained = 1 - means.inertia_ / float(((scaled - scaled.mean()) ** 2).sum())
    if contrast < _LEAST_CONTRAST or (contrast < _WEAK_CONTRAST and explained < _DISTINCT):
        return None
    return np.asarray(upper)


def _edges(seconds: Floats) -> Floats:
    """The boundaries of what each sample covers: it is the mean since the sample before."""
    usual = float(np.median(np.diff(seconds))) if len(seconds) > 1 else 0.0
    return np.concatenate([[seconds[0] - usual], seconds])


def _runs(
    edges: Floats, is_burst: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> tuple[tuple[bool, Span], ...]:
    """Runs of equal samples."""
    runs, start = [], 0
    for busy, samples in groupby(is_burst.tolist()):
        end = start + len(list(samples))
        runs.append((busy, Span(float(edges[start]), float(edges[end]))))
        start = end
    return tuple(runs)


def _pattern(is_burst: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Pattern:
    if is_burst.all():
        return Pattern.BUSY
    return Pattern.ALTERNATING if is_burst.any() else Pattern.IDLE


def _duration(runs: Sequence[tuple[bool, Span]], *, busy: bool) -> float:
    whole = [span.seconds for kind, span in runs[1:-1] if kind is busy]
    cut_off = [span.seconds for kind, span in runs if kind is busy]
    return _mean(np.array(whole or cut_off))


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else 0.0
