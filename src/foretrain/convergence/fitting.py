"""Robust fit of a family to a log: all shapes at once, scale and floor by reweighted least squares.

The shape is no argmin: it is the mean of the shapes tried, each weighted by its likelihood, first over the
whole range, then over ever finer neighbourhoods. Where a few points fit many shapes equally well, rounding
would decide an argmin; the mean stays where it is.

The loss is soft-L1, 2(√(1 + (r/c)²) - 1) with c from the median residual, so that a spike pulls no more than
in proportion to its size. Scales stay at least 0, floors within what the metric can be. Losses that fall over
orders of magnitude are fitted relative to their size, as on a logarithmic scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from foretrain.convergence.curves import Curve, Floats, MetricDirection
from foretrain.convergence.families._base import CurveFamily, CurveHorizon
from foretrain.ties import ROUNDING

_ROUNDS = 6
"""Reweightings of the robust fit, in which outliers lose their weight."""
_LEAST_NOISE = 1e-4
"""Residuals below this share of the log's range say nothing: logs are written to four or five digits."""
_ZOOMS = (0.25, 0.08, 0.025, 0.008, 0.0025, 0.0008)
"""The grid of shapes is drawn around its weighted mean again and again, about a third as wide each time. A
mean moves continuously with the log; the best grid point would jump."""
_ORDERS = 100.0
"""A loss that falls by more than this factor is fitted relative to its size."""
_MOST_POINTS = 96
"""Longer logs are condensed: a fit tries thousands of shapes, and neighbouring points say the same."""
_SEGMENTS = 4
"""Quarters of the log, of which a later one weighs more (see `_weights`)."""


@dataclass(frozen=True)
class Fit:
    """A family with its numbers: value(k) = sign · level(k; shape) · (floor + scale · basis(k; shape))."""

    family: CurveFamily
    shape: Floats
    scale: float
    floor: float
    sign: float
    span: CurveHorizon
    loss: float

    def values(self, steps: Floats) -> Floats:
        """The curve at these steps."""
        steps, shape = np.asarray(steps, float), self.shape[None, :]
        falling = self.family.basis(steps, shape, self.span)[0]
        level = self.family.level(steps, shape, self.span)[0]
        return np.asarray(self.sign * level * (self.floor + self.scale * falling))


def condense(curve: Curve, most: int = _MOST_POINTS) -> Curve:
    """At most `most` points: medians of bins that are even in the logarithm of the step."""
    if len(curve) <= most:
        return curve
    edges = np.geomspace(curve.steps[0], curve.steps[-1] * (1 + 1e-9), most + 1)
    places = np.clip(np.searchsorted(edges, curve.steps, side="right") - 1, 0, most - 1)
    used = np.unique(places)
    steps = np.array([np.median(curve.steps[places == place]) for place in used])
    values = np.array([np.median(curve.values[places == place]) for place in used])
    return replace(curve, steps=steps, values=values)


def lowest_floor(curve: Curve) -> float:
    """The least a falling curve can come to: 0 for losses; 1 or 100 (upside down) for shares."""
    if curve.direction is MetricDirection.DOWN:
        return 0.0 if float(curve.values.min()) >= 0 else -np.inf
    best = float(curve.values.max())
    if best <= 1 + ROUNDING:
        return -1.0
    return -100.0 if best <= 100 * (1 + ROUNDING) else -np.inf


def is_relative(curve: Curve) -> bool:
    """Whether errors count relative to the value: of positive losses that fall over orders of magnitude."""
    lowest = float(curve.values.min())
    return (
        curve.direction is MetricDirection.DOWN
        and lowest > 0
        and float(curve.values.max()) > (1 + ROUNDING) * _ORDERS * lowest
    )


def fit(curve: Curve, family: CurveFamily, span: CurveHorizon | None = None) -> Fit:
    """The best member of `family` for the curve: a search over its shapes, then finer ones."""
    span = span or CurveHorizon(curve.last_step, curve.planned_steps)
    points = condense(curve)
    sign, lowest = curve.direction.sign, lowest_floor(curve)
    falling = sign * points.values
    unit = 1 / np.abs(falling) if is_relative(curve) else np.ones(len(points))
    weights = _weights(points, family)
    shapes = family.shapes()
    low, high = shapes.min(axis=0), shapes.max(axis=0)
    shape = _mean_shape(shapes, np.zeros(len(shapes)))
    for zoom in (0.0, *_ZOOMS) if len(shapes) > 1 else ():
        tried = np.clip(_round(shape, zoom), low, high) if zoom else shapes
        losses, _, _ = _solve(family, tried, points.steps, span, falling, weights, unit, lowest)
        shape = _mean_shape(tried, losses + family.penalty(tried))
    losses, scales, floors = _solve(
        family, shape[None, :], points.steps, span, falling, weights, unit, lowest
    )
    return Fit(family, shape, float(scales[0]), float(floors[0]), sign, span, float(losses[0]))


def _mean_shape(shapes: Floats, losses: Floats) -> Floats:
    """The mean of the shapes, weighted by e^(-loss/2); in logarithms where an axis has no zero."""
    likelihood = np.exp(-0.5 * (losses - losses.min()))
    likelihood /= likelihood.sum()
    positive = (shapes > 0).all(axis=0)
    logarithms = np.log(np.where(positive, shapes, 1.0))
    mean: Floats = np.where(positive, np.exp(likelihood @ logarithms), likelihood @ shapes)
    return mean


def _weights(points: Curve, family: CurveFamily) -> Floats:
    count = len(points)
    if not family.segment_weights:
        return np.asarray((points.steps / points.last_step) ** family.recency)
    segments = np.minimum(np.arange(count) * _SEGMENTS // max(count, 1), _SEGMENTS - 1)
    return np.asarray(4.0 ** (2.0 * segments))  # sigma / 4^segment: weights are inverse squares


def _round(shape: Floats, zoom: float) -> Floats:
    steps = np.exp(zoom * np.array([-1.0, -0.5, 0.0, 0.5, 1.0]))
    axes = np.meshgrid(*(value * steps for value in shape), indexing="ij")
    return np.stack([axis.ravel() for axis in axes], axis=1)


def _solve(
    family: CurveFamily,
    shapes: Floats,
    steps: Floats,
    span: CurveHorizon,
    falling: Floats,
    weights: Floats,
    unit: Floats,
    lowest: float,
) -> tuple[Floats, Floats, Floats]:
    """Loss, scale and floor for each shape: least squares, reweighted so that residuals count linearly.

    Residuals are measured in `1 / unit`.
    """
    bases, level = family.basis(steps, shapes, span), family.level(steps, shapes, span)
    spread = float(np.ptp(falling * unit)) or 1.0
    least = max(_LEAST_NOISE * spread, family.accuracy * float(np.median(np.abs(falling * unit))))
    flat, unit = falling / level, unit * level
    robust = np.broadcast_to(weights, bases.shape)
    for _ in range(_ROUNDS + 1):
        scales, floors, _ = _linear(bases, flat, robust * unit**2, lowest, family.has_floor)
        residuals = (flat - floors[:, None] - scales[:, None] * bases) * unit
        size = np.maximum(_sizes(residuals, weights, family), least)[:, None]
        robust = weights / np.sqrt(1 + (residuals / size) ** 2)
    least = max(least, float(_sizes(residuals, weights, family).min()))
    losses = (weights * 2 * (np.sqrt(1 + (residuals / least) ** 2) - 1)).sum(axis=1)
    return losses, scales, floors


def _sizes(residuals: Floats, weights: Floats, family: CurveFamily) -> Floats:
    """The standard deviation of each row's residuals, robust; of late ones where those are fitted."""
    if family.recency:
        return np.asarray(math.sqrt(math.pi / 2) * (np.abs(residuals) @ weights) / weights.sum())
    return np.asarray(1.4826 * np.median(np.abs(residuals), axis=1))


def _linear(
    bases: Floats, falling: Floats, weights: Floats, lowest: float, has_floor: bool
) -> tuple[Floats, Floats, Floats]:
    """Weighted least squares of scale >= 0 and floor >= lowest, in closed form, for each row."""
    squares = np.maximum((weights * bases**2).sum(axis=1), 1e-300)  # 0 for a plateau
    free = (weights * falling * bases).sum(axis=1) / squares
    if not has_floor:
        return np.maximum(free, 0.0), np.zeros(len(bases)), free
    total = weights.sum(axis=1)
    mean_basis = (weights * bases).sum(axis=1) / total
    mean_value = (weights * falling).sum(axis=1) / total
    away = bases - mean_basis[:, None]
    scales = (weights * away * (falling - mean_value[:, None])).sum(axis=1)
    scales = np.maximum(scales / np.maximum((weights * away**2).sum(axis=1), 1e-300), 0.0)
    floors = mean_value - scales * mean_basis
    if np.isfinite(lowest):
        bound = floors < lowest
        held = (weights * (falling - lowest) * bases).sum(axis=1) / squares
        scales = np.where(bound, np.maximum(held, 0.0), scales)
        floors = np.where(bound, lowest, floors)
    return scales, floors, free
