"""Every prediction is a breakdown with an interval.

A `Part` is one named contribution with its median and how far its 10th and 90th percentile lie from it. An
`Estimate` is a sum of parts. Parts that rest on the same source err together, so their deviations add up;
parts of different sources err independently, so theirs add in quadrature:

    p50 = Σ value        p90 - p50 = √( Σ_source ( Σ_part above )² )        p50 - p10 likewise with below

What all parts of an estimate have in common (another cluster, framework or driver than those measured) moves
the whole sum: `common` holds these deviations, which are independent of those of the parts.

Hidden parts are work that happens in the shadow of something longer (overlapped communication, a prefetch):
listed, but not in the sum.

The three quantiles are all that is kept of a distribution; `probability_within` turns them back into the
probability of staying within a limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foretrain.errors import InvalidRequest

Floats = NDArray[np.float64]
Z90 = 1.2815515655446004
"""Standard deviations from the median of a normal distribution to its 90th percentile."""
_WITHIN = (0.2, 0.8)
"""Bounds of the probability of staying within p50, so that p10 and p90 stay on their sides of it."""
_normal_cdf = np.frompyfunc(lambda deviations: 0.5 * math.erfc(-deviations / math.sqrt(2)), 1, 1)
_normal_quantile = np.frompyfunc(NormalDist().inv_cdf, 1, 1)


@dataclass(frozen=True, slots=True)
class Quantiles:
    """The 10th, 50th and 90th percentile of a quantity."""

    p10: float
    p50: float
    p90: float

    def __post_init__(self) -> None:
        if not self.p10 <= self.p50 <= self.p90:
            raise ValueError(f"quantiles out of order: {self.p10} / {self.p50} / {self.p90}")

    def scale(self, factor: float) -> Quantiles:
        """All three, times a non-negative factor."""
        return Quantiles(self.p10 * factor, self.p50 * factor, self.p90 * factor)

    def times(self, other: Quantiles) -> Quantiles:
        """The product of two independent quantities: relative deviations add in quadrature."""
        p50 = self.p50 * other.p50
        if p50 == 0:
            return Quantiles(0.0, 0.0, 0.0)
        below = math.hypot(1 - self.p10 / self.p50, 1 - other.p10 / other.p50)
        above = math.hypot(self.p90 / self.p50 - 1, other.p90 / other.p50 - 1)
        return Quantiles(p50 * max(0.0, 1 - below), p50, p50 * (1 + above))


@dataclass(frozen=True, slots=True)
class Part:
    """One contribution: its median, its deviations to p10 and p90, and the source it rests on."""

    name: str
    value: float
    source: str
    below: float = 0.0
    above: float = 0.0
    hidden: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.value) and self.value >= 0):
            raise ValueError(f"part {self.name!r}: {self.value} is not a finite amount of at least 0")
        if not 0 <= self.below <= self.value or not (math.isfinite(self.above) and self.above >= 0):
            raise ValueError(
                f"part {self.name!r}: p10 must lie in [0, p50] and p90 above it; "
                f"got value {self.value}, below {self.below}, above {self.above}"
            )

    @classmethod
    def within(cls, name: str, value: float, source: str, p10: float, p90: float) -> Part:
        """A part predicted by a model whose quantiles of measured over predicted are `p10` and `p90`."""
        return cls(name, value, source, value * min(max(1 - p10, 0.0), 1.0), value * max(p90 - 1, 0.0))

    @property
    def quantiles(self) -> Quantiles:
        """This part's own interval."""
        return Quantiles(self.value - self.below, self.value, self.value + self.above)

    def scale(self, factor: float) -> Part:
        """The part `factor` times over (epochs of a step, devices of a node)."""
        return replace(self, value=self.value * factor, below=self.below * factor, above=self.above * factor)


@dataclass(frozen=True, slots=True)
class Deviation:
    """Distances of p10 and p90 from the median, in the unit of the estimate."""

    below: float = 0.0
    above: float = 0.0

    def __add__(self, other: Deviation) -> Deviation:
        return Deviation(self.below + other.below, self.above + other.above)

    def scale(self, factor: float) -> Deviation:
        """Both, times a factor."""
        return Deviation(self.below * factor, self.above * factor)


NO_DEVIATION = Deviation()


@dataclass(frozen=True, slots=True)
class Estimate:
    """A sum of parts in one unit. Build it from parts; combine with `+`, `scale`, `sequence`, `longest`.

    `common` is what all parts deviate by together, beside the deviations of each.
    """

    unit: str
    parts: tuple[Part, ...]
    common: Deviation = NO_DEVIATION

    @property
    def visible(self) -> tuple[Part, ...]:
        """The parts that make up the sum."""
        return tuple(part for part in self.parts if not part.hidden)

    @property
    def hidden(self) -> tuple[Part, ...]:
        """The parts listed beside the sum."""
        return tuple(part for part in self.parts if part.hidden)

    @property
    def value(self) -> float:
        """The median: the sum of the visible parts."""
        # fsum is exact: the order of the parts changes no last digit.
        return math.fsum(part.value for part in self.visible)

    @property
    def quantiles(self) -> Quantiles:
        """p10, p50 and p90 of the sum."""
        p50 = self.value
        below = math.hypot(_combined(self.visible, "below"), self.common.below)
        above = math.hypot(_combined(self.visible, "above"), self.common.above)
        return Quantiles(max(0.0, min(p50, p50 - below)), p50, p50 + above)

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources the visible parts rest on, in order of first use."""
        return tuple(dict.fromkeys(part.source for part in self.visible))

    def __add__(self, other: Estimate) -> Estimate:
        return sequence((self, other))

    def scale(self, factor: float) -> Estimate:
        """The same thing `factor` times over."""
        if not (math.isfinite(factor) and factor >= 0):
            raise ValueError(f"cannot scale an estimate by {factor}: give a finite factor of at least 0")
        return Estimate(
            self.unit, tuple(part.scale(factor) for part in self.parts), self.common.scale(factor)
        )

    def at_least(self, below: float, above: float) -> Estimate:
        """The same parts, with `common` such that the sum deviates by at least these shares of its median."""
        p50 = self.value
        # In quadrature with the deviations of the parts, `common` makes up what they lack to the share.
        common = [
            max(had, math.sqrt(max(0.0, (p50 * share) ** 2 - _combined(self.visible, side) ** 2)))
            for side, share, had in (("below", below, self.common.below), ("above", above, self.common.above))
        ]
        return replace(self, common=Deviation(*common))

    def hide(self) -> Estimate:
        """The same parts, all in the shadow of something else."""
        return Estimate(self.unit, tuple(replace(part, hidden=True) for part in self.parts))


def sequence(estimates: Iterable[Estimate]) -> Estimate:
    """One after the other: all parts of all estimates, which must share a unit."""
    listed = tuple(estimates)
    if not listed:
        raise ValueError("a sequence needs at least one estimate to know its unit")
    units = {estimate.unit for estimate in listed}
    if len(units) > 1:
        raise ValueError(f"cannot add estimates in different units: {', '.join(sorted(units))}")
    common = NO_DEVIATION
    for estimate in listed:
        common = common + estimate.common
    return Estimate(listed[0].unit, tuple(part for estimate in listed for part in estimate.parts), common)


def longest(*estimates: Estimate) -> Estimate:
    """Side by side: the one with the largest median counts, the others become hidden parts.

    Each percentile of the result is the largest of that percentile. Where that narrows the winner's lower
    side, its deviations shrink; where a loser may run longer than the winner, a part of median 0 called
    "overlap risk" carries the difference.
    """
    winner = max(estimates, key=lambda estimate: estimate.value)
    losers = [estimate for estimate in estimates if estimate is not winner]
    if not losers:
        return winner
    p50 = winner.value
    all_quantiles = [estimate.quantiles for estimate in estimates]
    floor = max(quantiles.p10 for quantiles in all_quantiles)
    ceiling = max(quantiles.p90 for quantiles in all_quantiles)
    narrowed = _narrow_below(winner, p50 - floor)
    # Deviations of different sources add in quadrature: with this one p90 of the sum is the ceiling.
    risk = math.sqrt(max(0.0, (ceiling - p50) ** 2 - (winner.quantiles.p90 - p50) ** 2))
    worst = max(losers, key=lambda estimate: estimate.quantiles.p90)
    extra = (
        (Part("overlap risk", 0.0, f"overlap with {worst.parts[0].name}", above=risk),) if risk > 0 else ()
    )
    shadow = tuple(part for loser in losers for part in loser.hide().parts)
    return Estimate(winner.unit, (*narrowed.parts, *extra, *shadow), narrowed.common)


def _narrow_below(estimate: Estimate, below: float) -> Estimate:
    current = math.hypot(_combined(estimate.visible, "below"), estimate.common.below)
    if current <= below or current == 0:
        return estimate
    factor = max(0.0, below) / current
    return Estimate(
        estimate.unit,
        tuple(part if part.hidden else replace(part, below=part.below * factor) for part in estimate.parts),
        replace(estimate.common, below=estimate.common.below * factor),
    )


def _combined(parts: Iterable[Part], side: str) -> float:
    """√( Σ_source ( Σ_part deviation )² ): the module's rule for one side of the interval."""
    by_source: dict[str, float] = {}
    for part in parts:
        by_source[part.source] = by_source.get(part.source, 0.0) + getattr(part, side)
    return math.sqrt(math.fsum(deviation**2 for deviation in by_source.values()))


def probability_within(
    p10: ArrayLike, p50: ArrayLike, p90: ArrayLike, limit: float, within: ArrayLike = 0.5
) -> Floats:
    """The probability that each quantity stays within the limit, from its three quantiles.

    `within` is the probability q of staying within p50, which is not one half where predictions are known to
    be low. The logarithm is half a normal distribution on either side of p50, of mass q and 1 - q:

        P = 2 q Φ(d) below, d = -z ln(limit / p50) / ln(p10 / p50), 2 q Φ(-z) = 0.1
        P = q + (1 - q) (2 Φ(d) - 1) above, d = z ln(limit / p50) / ln(p90 / p50), P = 0.9 at d = z

    So it is exactly 10, 100 q and 90 % at p10, p50 and p90. Where a side has no width it is a step.
    """
    q = np.clip(np.asarray(within, float), *_WITHIN)
    low, middle, high = np.broadcast_arrays(*(np.asarray(side, float) for side in (p10, p50, p90)))
    if not ((low >= 0) & (low <= middle) & (middle <= high)).all():
        raise InvalidRequest("quantiles must be at least 0 and in order: p10 <= p50 <= p90")
    if math.isnan(limit):
        raise InvalidRequest("the limit is not a number")
    below, above = -_inverse(0.1 / (2 * q)), _inverse(0.5 + (0.9 - q) / (1 - q) / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = np.log(limit / middle) if limit > 0 else np.full(middle.shape, -math.inf)
        width = np.where(limit >= middle, np.log(high / middle) / above, np.log(middle / low) / below)
        deviations = distance / width
    known = np.isfinite(width) & (width > 0)
    mass = 2 * np.asarray(_normal_cdf(np.where(known, deviations, 0.0)), dtype=float)
    share = np.where(limit >= middle, q + (1 - q) * (mass - 1), q * mass)
    step = np.where(limit >= middle, 1.0, np.where(width > 0, q, 0.0))
    # A p10 (or a median) of 0 leaves the lower half anywhere in (0, p50).
    return np.asarray(np.where(known, share, np.where(limit >= low, step, 0.0)), dtype=float)


def _inverse(share: Floats) -> Floats:
    return np.asarray(_normal_quantile(share), dtype=float)
