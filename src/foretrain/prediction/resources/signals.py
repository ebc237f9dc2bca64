"""Levels of resources over time, as steps of a periodic function, and samples of them as monitors take them.

A signal is `levels[i]` from `edges[i]` to `edges[i + 1]`; its first edge is 0, its last the period. A monitor
reports means between its samples, so a sample is the difference of the integral at two instants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretrain.store.runs import Floats, Resource, Series

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

    def sampled(self, resource: Resource, interval_seconds: float) -> Series:
        """What a monitor would report: means over `interval_seconds`, for at least five periods."""
        count = int(np.ceil(_FEWEST_PERIODS * self.period_seconds / interval_seconds))
        instants: Floats = interval_seconds * np.arange(count + 1, dtype=np.float64)
        values = np.diff(self.amounts(instants)) / interval_seconds
        return Series(resource=resource, worker=0, seconds=instants[1:], values=values)


def constant(level: float, period_seconds: float) -> Signal:
    """A level that does not change."""
    return Signal(np.array([0.0, period_seconds]), np.array([level]))


def stacked(spans: Sequence[tuple[float, float, float]], period_seconds: float) -> Signal:
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
