"""What earlier runs say of a value to come: the nearest in shape, brought to this run's level.

    value(later) = own(now) · other(later) / other(now)

so that only the shape of earlier runs counts, not the level they ended at. Shares (accuracies up to 1 or 100)
are taken as what is missing to the whole; differences stand for ratios where values are not all above 0.
Earlier runs that ended before `later` say nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from foretrain.convergence.curves import Curve, Direction, Floats, smoothed
from foretrain.convergence.fitting import lowest_floor
from foretrain.convergence.history import Timeline, weighted_quantile
from foretrain.estimates import Quantiles

_POINTS = 8
_FROM = 0.3
"""Curves are compared from this share of what was seen."""
_NEAR = 10
"""Runs up to this rank count nearly in full."""
_PROBES = 24
_SLACK = 0.98
_LEAST_MISSING = 1e-3

Transform = Callable[[Floats], Floats]


@dataclass(frozen=True)
class Shapes:
    """Earlier runs on this run's time: their values at the points seen, and at the steps asked for."""

    seen: Floats
    later: Floats
    groups: Floats


def value_quantiles(seen: Curve, timeline: Timeline, steps: Floats) -> tuple[Quantiles, ...] | None:
    """p10, p50 and p90 of the metric at later steps; None if fewer than three earlier runs got that far."""
    unit = seen.planned_steps or 1.0 if timeline.relative else 1.0
    points = np.linspace(_FROM, 1.0, _POINTS) * seen.last_step
    own = np.interp(points, seen.steps, smoothed(seen.values))
    shapes = _shapes(timeline, points / unit, np.asarray(steps) / unit)
    if shapes is None:
        return None
    forward, back = _scale(seen, own, shapes)
    table, later, mine = forward(shapes.seen), forward(shapes.later), forward(own)
    told, weights = _told(mine, table, later, np.ones(len(table), bool))
    order = np.argsort(-weights)[:_PROBES]
    errors = []
    for index in order:
        others = shapes.groups != shapes.groups[index]
        if others.sum() >= 2:
            guess, share = _told(table[index], table, later, others)
            usual = [weighted_quantile(column, share, 0.5) for column in guess.T]
            errors.append(later[index] - np.array(usual))
    off = np.array(errors) if errors else np.zeros((1, later.shape[1]))
    found = []
    for column in range(later.shape[1]):
        middle = weighted_quantile(told[:, column], weights, 0.5)
        both = (told[order, column][:, None] + off[None, :, column]).ravel()
        shares = np.repeat(weights[order], len(off))
        low, high = (weighted_quantile(both, shares, share) for share in (0.1, 0.9))
        found.append(Quantiles(*back(np.array([min(low, middle), middle, max(high, middle)])).tolist()))
    return tuple(found)


def _scale(seen: Curve, own: Floats, shapes: Shapes) -> tuple[Transform, Transform]:
    """The scale on which runs differ by a constant, and the way back; both rise."""
    whole = -lowest_floor(seen)
    every = np.concatenate([own, shapes.seen.ravel(), shapes.later.ravel()])
    if seen.direction is Direction.UP and np.isfinite(whole) and (every <= whole).all():
        least = _LEAST_MISSING * whole
        return lambda v: -np.log(np.maximum(whole - v, least)), lambda v: whole - np.exp(-v)
    if (every > 0).all():
        return np.log, np.exp
    return _same, _same


def _same(values: Floats) -> Floats:
    return values


def _shapes(timeline: Timeline, points: Floats, later: Floats) -> Shapes | None:
    units = timeline.units
    kept = [
        index
        for index, curve in enumerate(timeline.curves)
        if curve.last_step / units[index] >= _SLACK * later.max()
        and curve.steps[0] / units[index] <= points[-1]
    ]
    if len(kept) < 3:
        return None
    rows = [timeline.curves[index] for index in kept]
    scale = units[kept]
    seen = np.stack([_at(curve, points * unit) for curve, unit in zip(rows, scale, strict=True)])
    after = np.stack([_at(curve, later * unit) for curve, unit in zip(rows, scale, strict=True)])
    return Shapes(seen, after, timeline.groups[kept].astype(float))


def _at(curve: Curve, steps: Floats) -> Floats:
    return np.asarray(np.interp(steps, curve.steps, smoothed(curve.values)))


def _told(own: Floats, table: Floats, later: Floats, usable: Floats) -> tuple[Floats, Floats]:
    """Each earlier run's word brought to this level, and its weight by nearness in level and in shape."""
    difference = table - own
    level = np.sqrt((difference**2).mean(axis=1))
    shape = np.sqrt(((difference - difference[:, -1:]) ** 2).mean(axis=1))
    distance = np.where(usable, level + shape, np.inf)
    ranked = np.sort(distance[np.isfinite(distance)])
    width = max(float(ranked[min(_NEAR, len(ranked) - 1)]), 1e-9)
    weights = np.exp(-0.5 * (distance / width) ** 2)
    return later - difference[:, -1:], weights
