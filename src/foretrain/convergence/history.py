"""What earlier runs say of this one: the nearest by their early curve, warped in time onto it.

Every earlier run, sped up or slowed down by a few factors, is a guess of how this run goes on. A guess counts

    exp( -½ (distance / width)² - ½ (ln factor / warp)² )

where the distance is that of the two curves so far, as logarithms of the gap to the target. Width and warp
are those that would have predicted the earlier runs best from each other, whole groups left out, cut at the
same point; the errors made in that are the interval. Where lengths were planned, time is the share of the
plan.

A value to come follows from the nearest in shape, brought to the level of this run:

    value(later) = own(now) · other(later) / other(now)

so that only the shape of earlier runs counts, not the level they ended at. Shares (accuracies up to 1 or 100)
are taken as what is missing to the whole; differences stand for ratios where values are not all above 0.
Earlier runs that ended before `later` say nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretrain.convergence.curves import Curve, Floats, MetricDirection, smooth
from foretrain.convergence.fitting import lowest_floor
from foretrain.convergence.rolling import weighted_quantile
from foretrain.errors import InvalidRequest
from foretrain.estimates import Quantiles
from foretrain.ties import ROUNDING

_POINTS = 8
"""Points of the recent past at which runs are compared."""
_FROM = 0.3
"""Curves are compared from this share of what was seen."""
_NEAR = 10
"""Runs up to this rank count nearly in full."""
_PROBES = 24
"""The nearest earlier runs, on which weights and errors are judged."""
_SLACK = 0.98
"""A run need not be logged to the very end to count: 98 % of the way are enough."""
_LEAST_MISSING = 1e-3
"""A metric at its ceiling has no logarithm of what is missing; it is taken as this share of the whole."""
_TAPER = 1 - 1e-6
"""Just below 1: of rows that all weigh the same, each counts."""

Transform = Callable[[Floats], Floats]


class Shapes(NamedTuple):
    """Earlier runs on this run's time: their values at the points seen, and at the steps asked for."""

    seen: Floats
    later: Floats
    groups: Floats


def value_quantiles(seen: Curve, timeline: RunTimeline, steps: Floats) -> tuple[Quantiles, ...] | None:
    """p10, p50 and p90 of the metric at later steps; None if fewer than three earlier runs got that far."""
    unit = seen.planned_steps or 1.0 if timeline.relative else 1.0
    points = np.linspace(_FROM, 1.0, _POINTS) * seen.last_step
    own = np.interp(points, seen.steps, smooth(seen.values))
    shapes = _shapes(timeline, points / unit, np.asarray(steps) / unit)
    if shapes is None:
        return None
    forward, back = _scale(seen, own, shapes)
    table, later, mine = forward(shapes.seen), forward(shapes.later), forward(own)
    predicted, weights = _align_runs(mine, table, later, np.ones(len(table), bool))
    order, counted = _nearest_weights(weights, _PROBES)
    errors, error_weights = [], []
    for index, weight in zip(order, counted, strict=True):
        others = shapes.groups != shapes.groups[index]
        if others.sum() >= 2:
            guess, share = _align_runs(table[index], table, later, others)
            usual = [weighted_quantile(column, share, 0.5) for column in guess.T]
            errors.append(later[index] - np.array(usual))
            error_weights.append(weight)
    off = np.array(errors) if errors else np.zeros((1, later.shape[1]))
    shares = np.outer(counted, np.array(error_weights) if errors else np.ones(1)).ravel()
    quantiles = []
    for column in range(later.shape[1]):
        middle = weighted_quantile(predicted[:, column], weights, 0.5)
        both = (predicted[order, column][:, None] + off[None, :, column]).ravel()
        low, high = (weighted_quantile(both, shares, share) for share in (0.1, 0.9))
        quantiles.append(Quantiles(*back(np.array([min(low, middle), middle, max(high, middle)])).tolist()))
    return tuple(quantiles)


def _nearest_weights(weights: Floats, count: int) -> tuple[NDArray[np.int64], Floats]:
    """The `count` rows that weigh most, each by how much more than the first row left out.

    So the last row counts next to nothing, and it does not matter which of two equal rows that is.
    """
    order = np.argsort(-weights, kind="stable")
    beyond = float(weights[order[count]]) if len(order) > count else 0.0
    kept = order[:count]
    counted = weights[kept] - _TAPER * beyond
    return kept, counted if counted.sum() > 0 else np.ones(len(kept))


def _scale(seen: Curve, own: Floats, shapes: Shapes) -> tuple[Transform, Transform]:
    """The scale on which runs differ by a constant, and the way back; both rise."""
    whole = -lowest_floor(seen)
    every = np.concatenate([own, shapes.seen.ravel(), shapes.later.ravel()])
    if (
        seen.direction is MetricDirection.UP
        and np.isfinite(whole)
        and (every <= whole * (1 + ROUNDING)).all()
    ):
        least = _LEAST_MISSING * whole
        return lambda v: -np.log(np.maximum(whole - v, least)), lambda v: whole - np.exp(-v)
    if (every > 0).all():
        return np.log, np.exp
    return _same, _same


def _same(values: Floats) -> Floats:
    return values


def _shapes(timeline: RunTimeline, points: Floats, later: Floats) -> Shapes | None:
    units = timeline.units
    kept = [
        index
        for index, curve in enumerate(timeline.curves)
        if curve.last_step / units[index] >= (1 - ROUNDING) * _SLACK * later.max()
        and curve.steps[0] / units[index] <= (1 + ROUNDING) * points[-1]
    ]
    if len(kept) < 3:
        return None
    rows = [timeline.curves[index] for index in kept]
    scale = units[kept]
    seen = np.stack([_at(curve, points * unit) for curve, unit in zip(rows, scale, strict=True)])
    after = np.stack([_at(curve, later * unit) for curve, unit in zip(rows, scale, strict=True)])
    return Shapes(seen, after, timeline.groups[kept].astype(float))


def _at(curve: Curve, steps: Floats) -> Floats:
    return np.asarray(np.interp(steps, curve.steps, smooth(curve.values)))


def _align_runs(own: Floats, table: Floats, later: Floats, usable: Floats) -> tuple[Floats, Floats]:
    """Each run's forecast shifted to the current level, and its weight by similarity in level and shape."""
    difference = table - own
    level = np.sqrt((difference**2).mean(axis=1))
    shape = np.sqrt(((difference - difference[:, -1:]) ** 2).mean(axis=1))
    distance = np.where(usable, level + shape, np.inf)
    ranked = np.sort(distance[np.isfinite(distance)])
    width = max(float(ranked[min(_NEAR, len(ranked) - 1)]), 1e-9)
    weights = np.exp(-0.5 * (distance / width) ** 2)
    return later - difference[:, -1:], weights


_CELL = 0.02
"""Grid spacing in the logarithm of time: warping is a shift by cells."""
_WINDOW = 105
"""Cells compared: the last eighth-fold of time."""
_EVERY = 5
"""Cells between two that are compared: neighbours hold the same smoothed values."""
_SHIFTS = np.array([-16, -8, 0, 8, 16])
"""Cells by which an earlier run may be ahead or behind: it is compared at each of these paces."""
_WIDTHS = (0.07, 0.15, 0.4, 10.0)
_WARPS = (0.01, 0.15)
_SHARPNESS = 12.0
"""How fast a setting's weight falls with its error on the earlier runs."""
_TAPER_WIDTH = 0.02
"""Distance (of logarithms of gaps) over which the last of the probes fade in."""
_LEAST_RESIDUALS = 6
"""Fewer errors make no quantiles."""
_MOST_GUESSES = 200
"""Forecasts that are kept, the nearest first."""
_FEW_RUNS = np.array([-0.3, -0.15, 0.0, 0.15, 0.3])
"""Assumed spread of ln(true / predicted) where too few earlier runs could be predicted from each other."""


@dataclass(frozen=True)
class History:
    """Earlier runs of the same metric."""

    curves: tuple[Curve, ...]

    @cached_property
    def is_planned(self) -> bool:
        """Whether every run's planned length is known."""
        return all(curve.planned_steps for curve in self.curves)

    def without(self, group: str) -> History:
        """All but the runs of one group."""
        return History(tuple(curve for curve in self.curves if curve.group != group))


@dataclass(frozen=True)
class Guesses:
    """What earlier runs say: steps at which the target is met, each with its weight and its error so far.

    `residuals` are logarithms of true over predicted among the earlier runs, with `residual_weights`.
    """

    steps: Floats
    weights: Floats
    runs: tuple[str, ...]
    factors: Floats
    width: float
    warp: float
    residuals: Floats
    residual_weights: Floats
    reaching: float

    @property
    def median(self) -> float:
        """The weighted median of the guesses that meet the target; infinite if none does."""
        there = np.isfinite(self.steps)
        return weighted_quantile(self.steps[there], self.weights[there], 0.5) if there.any() else math.inf

    def quantiles(self, now: float) -> Quantiles:
        """p10, p50 and p90 of the step: the guesses, each as far off as predictions of earlier runs were."""
        there = np.flatnonzero(np.isfinite(self.steps) & (self.weights > 0))
        if not len(there):
            return Quantiles(math.inf, math.inf, math.inf)
        rows, counted = _nearest_weights(self.weights[there], _MOST_GUESSES)
        kept = there[rows]
        errors, shares = self.residuals, self.residual_weights
        if len(errors) < _LEAST_RESIDUALS:
            errors, shares = _FEW_RUNS, np.ones(len(_FEW_RUNS))
        predicted = (self.steps[kept][:, None] * np.exp(errors[None, :])).ravel()
        weights = np.outer(counted, shares).ravel()
        middle = max(self.median, now)
        low, high = (max(now, weighted_quantile(predicted, weights, share)) for share in (0.1, 0.9))
        return Quantiles(min(low, middle), middle, max(high, middle))

    @property
    def error(self) -> float:
        """The usual size of the error among the earlier runs: median of |ln(true / predicted)|."""
        if len(self.residuals) < _LEAST_RESIDUALS:
            return float(np.median(np.abs(_FEW_RUNS)))
        return weighted_quantile(np.abs(self.residuals), self.residual_weights, 0.5)


class RunTimeline:
    """Earlier runs on one grid that is even in the logarithm of time. Built once, asked often."""

    def __init__(self, history: History, relative: bool) -> None:
        self.relative = relative
        self.curves = history.curves
        units = [curve.planned_steps or 1.0 if relative else 1.0 for curve in self.curves]
        self.units = np.array(units, float)
        starts = [curve.steps[0] / unit for curve, unit in zip(self.curves, units, strict=True)]
        ends = [curve.last_step / unit for curve, unit in zip(self.curves, units, strict=True)]
        self.first = math.log(max(min(starts), max(ends) * 1e-5))
        self.count = max(2, math.ceil((math.log(max(ends)) - self.first) / _CELL) + 1)
        self.times = np.exp(self.first + _CELL * np.arange(self.count))
        self.values = np.stack(
            [self._resampled(curve, unit) for curve, unit in zip(self.curves, units, strict=True)]
        )
        labels = {curve.group or curve.name: number for number, curve in enumerate(self.curves)}
        self.groups = np.array([labels[curve.group or curve.name] for curve in self.curves])

    def _resampled(self, curve: Curve, unit: float) -> Floats:
        return np.asarray(np.interp(self.times * unit, curve.steps, smooth(curve.values)))

    def cells(self, time: float) -> NDArray[np.int64]:
        """The cells that are compared when `time` is now."""
        last = round((math.log(time) - self.first) / _CELL)
        return np.arange(last, last - _WINDOW, -_EVERY)[::-1]


def guesses(seen: Curve, timeline: RunTimeline, target: float) -> Guesses:
    """When this run meets the target, by the earlier ones."""
    unit = _unit(seen, timeline)
    now = seen.last_step / unit
    meets = np.array([curve.first_reaching(target) for curve in timeline.curves]) / timeline.units
    alive = np.flatnonzero(meets > now * (1 + ROUNDING))
    if len(alive) < 2:
        raise InvalidRequest(
            f"only {len(alive)} of {len(timeline.curves)} earlier runs had not met the target by now"
        )
    cells = timeline.cells(now)
    times = np.exp(timeline.first + _CELL * cells)
    own = np.interp(times * unit, seen.steps, smooth(seen.values))
    sign = seen.direction.sign
    table = sign * (timeline.values[alive] - target)
    least = 0.01 * max(float(np.median(sign * (own - target))), 1e-12)
    gaps = np.log(np.maximum(table, least))
    shifted = gaps[:, np.clip(cells[None, :] + _SHIFTS[:, None], 0, timeline.count - 1)]
    weights = np.linspace(0.3, 1.0, len(cells))
    weights /= weights.sum()
    factors = np.exp(_CELL * _SHIFTS)
    predicted = meets[alive][:, None] / factors[None, :]
    own_distance = _distances(np.log(np.maximum(sign * (own - target), least))[None, :], shifted, weights)
    nearness = -own_distance[0].min(axis=1)
    reaching = np.flatnonzero(np.isfinite(meets[alive]))
    rank = np.argsort(-nearness[reaching], kind="stable")
    probes = reaching[rank[:_PROBES]]
    # the last probe counts nothing, so that it does not matter which of two equally near runs it is
    beyond = float(nearness[reaching[rank[_PROBES]]]) if len(rank) > _PROBES else -math.inf
    counted = 1 - np.exp(-(nearness[probes] - beyond) / _TAPER_WIDTH**2)
    counted = counted if counted.sum() > 0 else np.ones(len(probes))
    unshifted = shifted[:, len(_SHIFTS) // 2, :]
    among = _distances(unshifted[probes], shifted, weights)
    groups = timeline.groups[alive]
    other = groups[probes][:, None] != groups[None, :]
    settings, residuals = _choose(among, other, predicted, meets[alive][probes], now, counted)
    likely = np.zeros(predicted.shape)
    for (width, warp), share in settings.items():
        each = _weights(own_distance, predicted, now, width, warp)[0]
        likely += share * each / max(float(each.sum()), 1e-300)
    width = math.exp(sum(share * math.log(width) for (width, _), share in settings.items()))
    warp = math.exp(sum(share * math.log(warp) for (_, warp), share in settings.items()))
    near = np.exp(0.5 * nearness[probes] / max(2 * width, 0.2) ** 2) + 1e-3
    kept = np.isfinite(residuals)
    flat = likely.ravel()
    return Guesses(
        steps=(predicted * unit).ravel(),
        weights=flat / flat.sum(),
        runs=tuple(timeline.curves[index].name for index in alive for _ in factors),
        factors=np.tile(factors, len(alive)),
        width=width,
        warp=warp,
        residuals=residuals[kept],
        residual_weights=(near * counted)[kept],
        reaching=float(flat[np.isfinite(predicted.ravel())].sum() / flat.sum()),
    )


def _unit(seen: Curve, timeline: RunTimeline) -> float:
    if not timeline.relative:
        return 1.0
    if not seen.planned_steps:
        raise InvalidRequest("the history is in shares of planned lengths: give `planned_steps`")
    return seen.planned_steps


def _distances(rows: Floats, shifted: Floats, weights: Floats) -> Floats:
    """Mean squared differences: rows x runs x shifts."""
    runs, shifts, cells = shifted.shape
    flat = shifted.reshape(runs * shifts, cells)
    squares = (rows**2 @ weights)[:, None] + (flat**2 @ weights)[None, :] - 2 * (rows * weights) @ flat.T
    return np.maximum(squares, 0.0).reshape(len(rows), runs, shifts)


def _weights(distances: Floats, predicted: Floats, now: float, width: float, warp: float) -> Floats:
    """Weight of each guess; those that would have met the target already count nothing."""
    logarithms = -0.5 * distances / width**2 - 0.5 * ((_CELL * _SHIFTS) / warp) ** 2
    logarithms = np.where(predicted > now * (1 + ROUNDING), logarithms, -np.inf)
    top = logarithms.max(axis=(1, 2), keepdims=True)
    return np.asarray(np.exp(logarithms - np.where(np.isfinite(top), top, 0.0)))


def _choose(
    among: Floats, other: NDArray[np.bool_], predicted: Floats, true: Floats, now: float, counted: Floats
) -> tuple[dict[tuple[float, float], float], Floats]:
    """Shares of the settings (width, warp) by how they predict the probes, and the errors left.

    Probes are predicted from the runs of other groups. The best setting counts most, those nearly as good
    nearly as much: no setting wins by a hair.
    """
    if not len(true):
        return {(0.2, 0.1): 1.0}, np.zeros(0)
    losses: dict[tuple[float, float], float] = {}
    left: dict[tuple[float, float], Floats] = {}
    finite = np.isfinite(predicted)
    order = np.argsort(predicted.ravel(), kind="stable")
    ordered = predicted.ravel()[order]
    for width in _WIDTHS:
        for warp in _WARPS:
            weights = _weights(among, predicted, now, width, warp) * (other[:, :, None] & finite[None])
            cumulated = np.cumsum(weights.reshape(len(true), -1)[:, order], axis=1)
            medians = np.array([_median_of_cumulated(ordered, row) for row in cumulated])
            residuals = np.log(true / medians)
            known = np.isfinite(residuals)
            if known.sum() < min(3, len(true)):
                continue
            sizes, shares = np.abs(residuals[known]), counted[known] + 1e-12
            usual = weighted_quantile(sizes, shares, 0.5)
            losses[width, warp] = float(shares @ np.minimum(sizes, 0.5) / shares.sum()) + usual + 1e-3
            left[width, warp] = residuals
    if not losses:
        return {(0.2, 0.1): 1.0}, np.full(len(true), np.nan)
    best = min(losses.values())
    weights_of = {setting: (best / loss) ** _SHARPNESS for setting, loss in losses.items()}
    total = sum(weights_of.values())
    shares_of = {setting: weight / total for setting, weight in weights_of.items()}
    return shares_of, np.asarray(sum(share * left[setting] for setting, share in shares_of.items()))


def _median_of_cumulated(values: Floats, cumulated: Floats) -> float:
    """The median of rising values with these cumulated weights, interpolated; NaN without any weight."""
    total = float(cumulated[-1])
    if not total > 0:
        return math.nan
    weights = np.diff(cumulated, prepend=0.0)
    counted = weights > 1e-15 * total
    return float(np.interp(0.5 * total, (cumulated - 0.5 * weights)[counted], values[counted]))


def nearest(guessed: Guesses, count: int = 5) -> Sequence[tuple[str, float]]:
    """The runs that count most, each with its share."""
    shares: dict[str, float] = {}
    for run, weight in zip(guessed.runs, guessed.weights, strict=True):
        shares[run] = shares.get(run, 0.0) + float(weight)
    return sorted(shares.items(), key=lambda item: -item[1])[:count]
