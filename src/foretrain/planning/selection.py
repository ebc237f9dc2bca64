"""Select: the plans within the limits, the Pareto front, the knee, the nearest miss, and why others lost.

An alternative dominates another if it is neither slower nor more expensive, and better in one of the two. The
Pareto front is what nothing dominates; alternatives that tie in both are on it together.

The **knee** is the alternative with the least time x cost: against it, no other buys more than one fold of
speed per fold of cost (Δ of `planning.speedup` is at most 1). It depends neither on units nor on the ends of
the front, so an extreme alternative does not move it; it may itself be an end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foretrain.convergence.curves import Floats
from foretrain.errors import InvalidRequest
from foretrain.estimates import Quantiles, probability_within
from foretrain.planning.options import Limits

_NEXT = 2
"""Plans after the choice that are named."""


@dataclass(frozen=True)
class Numbers:
    """Time and cost of plans, as columns of p10, p50 and p90, and the probability that each fits.

    `within` is the probability that a plan takes no longer than predicted. Plans that are not `safe` may run
    out of memory, and are chosen only where no other meets the limits.
    """

    seconds: Floats
    usd: Floats
    fitting: Floats
    within: Floats
    safe: NDArray[np.bool_]

    @property
    def middle(self) -> tuple[Floats, Floats]:
        """The medians."""
        return self.seconds[:, 1], self.usd[:, 1]


def numbers(
    seconds: Sequence[Quantiles],
    usd: Sequence[Quantiles],
    fitting: Sequence[float] | None = None,
    within: Sequence[float] | None = None,
    safe: Sequence[bool] | None = None,
) -> Numbers:
    """Quantiles of plans as columns; by default all plans are certain to fit into memory."""
    times, money = (np.array([(q.p10, q.p50, q.p90) for q in column]) for column in (seconds, usd))
    return Numbers(
        times,
        money,
        np.ones(len(times)) if fitting is None else np.asarray(fitting, float),
        np.full(len(times), 0.5) if within is None else np.asarray(within, float),
        np.ones(len(times), bool) if safe is None else np.asarray(safe, bool),
    )


@dataclass(frozen=True)
class Selection:
    """Indices of plans, and the probability of each to meet the limits.

    `reported` is `chosen`, or the nearest miss where no plan meets the limits. `next_best` follow the choice
    by its own rule.
    """

    front: tuple[int, ...]
    cheapest: int | None
    fastest: int | None
    knee: int
    chosen: int | None
    reported: int
    next_best: tuple[int, ...]
    in_time: Floats
    in_budget: Floats
    both: Floats

    @property
    def named(self) -> frozenset[int]:
        """All plans that the answer names."""
        indices = (*self.front, self.cheapest, self.fastest, self.knee, self.reported, *self.next_best)
        return frozenset(index for index in indices if index is not None)


def chances(of: Numbers, limits: Limits) -> tuple[Floats, Floats, Floats]:
    """The probability of each plan to fit and meet the deadline, the budget, and both."""
    in_time, in_budget = (
        probability_within(column[:, 0], column[:, 1], column[:, 2], limit, of.within) * of.fitting
        for column, limit in ((of.seconds, limits.most_seconds), (of.usd, limits.most_usd))
    )
    return in_time, in_budget, probability_of_both(in_time, in_budget)


def select(of: Numbers, limits: Limits) -> Selection:
    """The plan to take: the cheapest in time, else the fastest within the budget, else the knee."""
    seconds, usd = of.middle
    in_time, in_budget, both = chances(of, limits)
    allowed = np.flatnonzero((both >= limits.confidence) & of.safe)
    if not len(allowed):
        allowed = np.flatnonzero(both >= limits.confidence)
    by_cost = allowed[np.lexsort((seconds[allowed], usd[allowed]))]
    by_time = allowed[np.lexsort((usd[allowed], seconds[allowed]))]
    among = np.flatnonzero(of.safe) if of.safe.any() else np.arange(len(seconds))
    by_both = among[np.lexsort((seconds[among], usd[among], (seconds * usd)[among]))]
    order = by_cost if limits.deadline is not None else by_time if limits.budget is not None else by_both
    chosen = int(order[0]) if len(order) else None
    return Selection(
        front=tuple(pareto_front(seconds, usd).tolist()),
        cheapest=int(by_cost[0]) if len(by_cost) else None,
        fastest=int(by_time[0]) if len(by_time) else None,
        knee=int(by_both[0]),
        chosen=chosen,
        reported=_nearest(both, seconds, usd, limits) if chosen is None else chosen,
        next_best=tuple(order[1 : 1 + _NEXT].tolist()),
        in_time=in_time,
        in_budget=in_budget,
        both=both,
    )


def _nearest(both: Floats, seconds: Floats, usd: Floats, limits: Limits) -> int:
    """The plan most likely to meet the limits; of equals the one that exceeds them least."""
    excess = np.maximum(seconds / limits.most_seconds, usd / limits.most_usd)
    return int(np.lexsort((excess, -np.round(both, 3)))[0])


Indices = NDArray[np.intp]


class Verdict(StrEnum):
    """The verdict on an alternative; the first that applies, in this order."""

    OVER_DEADLINE = "over the deadline"
    OVER_BUDGET = "over the budget"
    DOMINATED = "dominated"
    ON_FRONT = "on the front"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why an alternative lost, and by how much.

    Dominated: `better` is the cheapest that is no slower, and the excesses are over it. Over the deadline or
    the budget: the excesses are over these (0 where the limit is met), and `better` still names a dominator.
    """

    index: int
    verdict: Verdict
    better: int | None
    excess_seconds: float
    excess_usd: float


def pareto_front(seconds: ArrayLike, usd: ArrayLike) -> Indices:
    """The indices nothing dominates, fastest first (equals by index); exact, O(n log n)."""
    times, money = _check_limits(seconds, usd)
    order = np.lexsort((money, times))
    times, money = times[order], money[order]
    # Within one time the first is the cheapest; it counts if it is cheaper than everything faster.
    first_of_time = np.searchsorted(times, times, side="left")
    cheapest_until = np.concatenate(([math.inf], np.minimum.accumulate(money)))
    on_front: NDArray[np.bool_] = (money == money[first_of_time]) & (money < cheapest_until[first_of_time])
    return np.asarray(order[on_front])


def knee(seconds: ArrayLike, usd: ArrayLike) -> int:
    """The alternative of the least time x cost; of equals the cheapest, then the fastest."""
    times, money = _check_limits(seconds, usd)
    if not len(times):
        raise InvalidRequest("a knee needs at least one alternative")
    return int(np.lexsort((times, money, times * money))[0])


def cheapest_within(
    seconds: ArrayLike, usd: ArrayLike, deadline: float = math.inf, budget: float = math.inf
) -> int | None:
    """The cheapest that takes at most `deadline` seconds (of equals the fastest), or None."""
    times, money = _check_limits(seconds, usd)
    return _first_allowed(np.lexsort((times, money)), (times <= deadline) & (money <= budget))


def fastest_within(
    seconds: ArrayLike, usd: ArrayLike, budget: float = math.inf, deadline: float = math.inf
) -> int | None:
    """The fastest that costs at most `budget` USD (of equals the cheapest), or None."""
    times, money = _check_limits(seconds, usd)
    return _first_allowed(np.lexsort((money, times)), (times <= deadline) & (money <= budget))


def probability_of_both(in_time: ArrayLike, in_budget: ArrayLike) -> Floats:
    """The probability of meeting deadline and budget: the smaller of the two.

    Cost is time at a known price, so a late job is also an expensive one; if the two were independent it
    would be the product.
    """
    return np.asarray(np.minimum(np.asarray(in_time, float), np.asarray(in_budget, float)), dtype=float)


def reasons(
    seconds: ArrayLike, usd: ArrayLike, deadline: float = math.inf, budget: float = math.inf
) -> tuple[Reason, ...]:
    """The verdict on every alternative, in order, and by how much it lost."""
    times, money = _check_limits(seconds, usd)
    front = pareto_front(times, money)
    on_front = np.isin(np.arange(len(times)), front)
    # Along the front cost falls as time rises, so the last that is no slower is the cheapest of these.
    better = front[np.searchsorted(times[front], times, side="right") - 1] if len(front) else front
    return tuple(
        _reason(index, times, money, None if on_front[index] else int(better[index]), (deadline, budget))
        for index in range(len(times))
    )


def _reason(
    index: int, times: Floats, money: Floats, better: int | None, limits: tuple[float, float]
) -> Reason:
    time, cost = float(times[index]), float(money[index])
    late, dear = max(0.0, time - limits[0]), max(0.0, cost - limits[1])
    if late or dear:
        verdict = Verdict.OVER_DEADLINE if late else Verdict.OVER_BUDGET
        return Reason(index, verdict, better, late, dear)
    if better is None:
        return Reason(index, Verdict.ON_FRONT, None, 0.0, 0.0)
    return Reason(index, Verdict.DOMINATED, better, time - float(times[better]), cost - float(money[better]))


def _first_allowed(order: Indices, allowed: NDArray[np.bool_]) -> int | None:
    ranked = order[allowed[order]]
    return int(ranked[0]) if len(ranked) else None


def _check_limits(seconds: ArrayLike, usd: ArrayLike) -> tuple[Floats, Floats]:
    times, money = np.asarray(seconds, float), np.asarray(usd, float)
    if times.ndim != 1 or times.shape != money.shape:
        raise InvalidRequest(f"one time and one cost per alternative; got {times.shape} and {money.shape}")
    for name, values in (("times", times), ("prices", money)):
        if not (np.isfinite(values) & (values >= 0)).all():
            raise InvalidRequest(f"{name} must be finite and at least 0; omit what cannot run")
    return times, money
