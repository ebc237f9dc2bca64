"""Which of many plans to take: those within the limits, the front among all, and the nearest miss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretrain.convergence.curves import Floats
from foretrain.errors import InvalidRequest
from foretrain.estimates import Quantiles
from foretrain.planning.pareto import Indices, knee, pareto_front, probability_of_both, probability_within

EVEN = 0.5
"""A plan meets a limit if it is at least as likely as not to."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a job may take, and how sure of it one wants to be."""

    deadline_seconds: float | None = None
    budget_usd: float | None = None
    confidence: float = EVEN

    def __post_init__(self) -> None:
        for name in ("deadline_seconds", "budget_usd"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InvalidRequest(f"{name.split('_')[0]} must be above 0, got {value:g}")
        if not 0 < self.confidence < 1:
            raise InvalidRequest(f"confidence lies between 0 and 1, got {self.confidence:g}")

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return self.deadline_seconds is not None or self.budget_usd is not None

    @property
    def deadline(self) -> float:
        """Seconds; infinite without a deadline."""
        return math.inf if self.deadline_seconds is None else self.deadline_seconds

    @property
    def budget(self) -> float:
        """USD; infinite without a budget."""
        return math.inf if self.budget_usd is None else self.budget_usd


@dataclass(frozen=True)
class Numbers:
    """Time and money of plans, as columns of p10, p50 and p90."""

    seconds: Floats
    usd: Floats

    @property
    def middle(self) -> tuple[Floats, Floats]:
        """The medians."""
        return self.seconds[:, 1], self.usd[:, 1]


def numbers(seconds: Sequence[Quantiles], usd: Sequence[Quantiles]) -> Numbers:
    """Quantiles of plans as columns."""
    return Numbers(*(np.array([(q.p10, q.p50, q.p90) for q in column]) for column in (seconds, usd)))


@dataclass(frozen=True)
class Choice:
    """Indices of plans, and the probability of each to keep the limits."""

    front: tuple[int, ...]
    cheapest: int | None
    fastest: int | None
    knee: int
    chosen: int | None
    shown: int
    in_time: Floats
    in_budget: Floats
    both: Floats

    @property
    def told(self) -> frozenset[int]:
        """All plans that are told of by name."""
        named = (*self.front, self.cheapest, self.fastest, self.knee, self.shown)
        return frozenset(index for index in named if index is not None)


def choose(of: Numbers, limits: Limits) -> Choice:
    """The plan to take: the cheapest in time, else the fastest within the budget, else the knee."""
    seconds, usd = of.middle
    in_time, in_budget = (
        probability_within(column[:, 0], column[:, 1], column[:, 2], limit)
        for column, limit in ((of.seconds, limits.deadline), (of.usd, limits.budget))
    )
    both = probability_of_both(in_time, in_budget)
    allowed = np.flatnonzero(both >= limits.confidence)
    cheapest = _first(allowed, np.lexsort((seconds[allowed], usd[allowed])))
    fastest = _first(allowed, np.lexsort((usd[allowed], seconds[allowed])))
    middle = knee(seconds, usd)
    if limits.deadline_seconds is not None:
        chosen = cheapest
    elif limits.budget_usd is not None:
        chosen = fastest
    else:
        chosen = middle
    return Choice(
        front=tuple(pareto_front(seconds, usd).tolist()),
        cheapest=cheapest,
        fastest=fastest,
        knee=middle,
        chosen=chosen,
        shown=_nearest(both, seconds, usd, limits) if chosen is None else chosen,
        in_time=in_time,
        in_budget=in_budget,
        both=both,
    )


def _first(allowed: Indices, order: Indices) -> int | None:
    return int(allowed[order[0]]) if len(allowed) else None


def _nearest(both: Floats, seconds: Floats, usd: Floats, limits: Limits) -> int:
    """The plan most likely to keep the limits; of equals the one that exceeds them least."""
    excess = np.maximum(seconds / limits.deadline, usd / limits.budget)
    return int(np.lexsort((excess, -np.round(both, 3)))[0])
