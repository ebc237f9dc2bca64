"""Which family to believe: by how well it predicts the log's end from its beginning, not by how well it fits.

At rolling origins (half, 65 and 80 % of the log) each family is fitted to what came before and held against
what came after. Weights fall with the fourth power of that error; its growth with the horizon is the spread:

    σ(k)² = noise² + (growth · ln(k / now))² + (gain's spread · fall of the rate until k)²

in units of the metric, or relative to its value where the curve is fitted so (`fitting.is_relative`).

A few points ahead say little of that error: it is shrunk towards the mean of all.

Where the schedule of a loss is known, the log so far cannot show what the rest of it brings. As far as the
annealing law holds (its floor is a large part of the loss, as in training on data that is not repeated; not
where a loss goes to 0 by memorising), the distance of another family from it at the planned end is an error
of that family, whatever its error so far.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretrain.convergence.curves import Curve, Floats, MetricDirection, smooth
from foretrain.convergence.families import CurveFamily, CurveHorizon, families
from foretrain.convergence.families.laws import annealing_prior
from foretrain.convergence.fitting import Fit, condense, fit, is_relative, lowest_floor
from foretrain.estimates import Quantiles
from foretrain.ties import ROUNDING

_ORIGINS = (0.5, 0.65, 0.8)
"""Where the log is cut to predict its end from its beginning, as shares of it."""
_LEAST_AT_ORIGIN = 3
"""Points that the families need before a cut."""
_SHARPNESS = 4.0
"""How strongly families with smaller errors are preferred: half of the error, 16 times the weight."""
_SHRINK = 4.0
"""Points ahead at which a family's own error counts as much as the (geometric) mean of all."""
_LAW_HOLDS = (0.2, 0.5)
"""Floors, as shares of the loss, over which the annealing law begins to hold; published laws: above 0.9."""
_LEAST_ERROR = 1e-4
"""Errors below this share of a log's range are equally good."""
_NODES = np.array([-1.645, -1.036, -0.674, -0.385, -0.126, 0.126, 0.385, 0.674, 1.036, 1.645])
"""Middles of ten equal slices of the normal distribution."""


@dataclass(frozen=True)
class Ensemble:
    """Fitted families with their weights, and how far off they have been."""

    fits: tuple[Fit, ...]
    weights: Floats
    noise: float
    growth: float
    now: float
    bounds: tuple[float, float]
    relative: bool = False
    gain: float = 0.0

    def members(self, steps: Floats) -> tuple[Floats, Floats]:
        """Curves at these steps and their weights: each family at ten levels of its error."""
        middles = np.stack([item.values(steps) for item in self.fits])
        horizon = np.log(np.maximum(np.asarray(steps) / self.now, 1.0))
        spread = np.sqrt(self.noise**2 + (self.growth * horizon) ** 2 + self._hidden(np.asarray(steps)) ** 2)
        away = _NODES[None, :, None] * spread[None, None, :]
        curves = middles[:, None, :] * np.exp(away) if self.relative else middles[:, None, :] + away
        weights = np.repeat(self.weights / len(_NODES), len(_NODES))
        return np.clip(curves.reshape(-1, len(steps)), *self.bounds), weights

    def _hidden(self, steps: Floats) -> Floats:
        """How uncertain the gain by the rate's fall until then is."""
        span = self.fits[0].span
        fall = np.maximum(span.rate(np.array([self.now])) - span.rate(steps), 0.0)
        return np.asarray(annealing_prior()["gain_spread"] * self.gain * fall)

    @property
    def chief(self) -> Fit:
        """The family with the largest weight."""
        return self.fits[int(np.argmax(self.weights))]


def ensemble(curve: Curve, span: CurveHorizon, chosen: Sequence[CurveFamily] = ()) -> Ensemble:
    """Families fitted to the log, weighted by their errors at the rolling origins."""
    points = condense(curve)
    relative = is_relative(points)
    is_loss = curve.direction is MetricDirection.DOWN and float(curve.values.min()) > 0
    is_annealed = is_loss and bool(span.planned_steps) and span.schedule is not None
    gain = annealing_prior()["gain"] if is_annealed else 0.0
    gain *= 1.0 if relative else abs(float(points.values[-1]))
    tried = tuple(chosen) or applicable(is_loss, is_annealed)
    fits = tuple(fit(points, family, span) for family in tried)
    errors, slopes, ahead = _roll_origins(points, span, tried)
    whole = 1.0 if relative else float(np.ptp(points.values))
    errors = np.hypot(errors, _LEAST_ERROR * whole)  # on a noiseless log several families make no error
    logarithms = np.log(errors)
    errors = np.exp((ahead * logarithms + _SHRINK * logarithms.mean()) / (ahead + _SHRINK))
    if any(family.needs_schedule for family in tried):
        errors = np.hypot(errors, _off_the_law(fits, span))
    weights = (errors.min() / errors) ** _SHARPNESS
    weights /= weights.sum()
    unit = np.abs(points.values) if relative else np.ones(len(points))
    off = np.abs(points.values - smooth(points.values)) / unit
    noise = 1.4826 * float(np.median(off)) if len(points) > 4 else 0.0
    lowest = lowest_floor(curve)
    bounds = (lowest, np.inf) if curve.direction.sign > 0 else (-np.inf, -lowest)
    # what no family foresaw; what only some did not shows in how far they are apart
    growth = float(slopes.min())
    return Ensemble(fits, weights, noise, growth, curve.last_step, bounds, relative, gain)


def _off_the_law(fits: Sequence[Fit], span: CurveHorizon) -> Floats:
    """How far each family ends from the annealing law, as far as that holds."""
    end = np.array([max(span.planned_steps or span.last_step, span.last_step)])
    law = next(item for item in fits if item.family.needs_schedule)
    low, high = _LAW_HOLDS
    now = float(law.values(np.array([span.last_step]))[0])
    holds = min(max((law.floor / now - low) / (high - low), 0.0), 1.0)
    return np.array([holds * abs(float(item.values(end)[0] - law.values(end)[0])) for item in fits])


def applicable(is_loss: bool, is_annealed: bool) -> tuple[CurveFamily, ...]:
    """The families that can be used: without a floor only of losses above 0, annealing if that is known."""
    return tuple(
        family
        for family in families().values()
        if (is_loss or family.has_floor) and (is_annealed or not family.needs_schedule)
    )


def _roll_origins(
    points: Curve, span: CurveHorizon, tried: Sequence[CurveFamily]
) -> tuple[Floats, Floats, float]:
    """For each family the mean error beyond the origins, and its growth with the logarithm of the horizon.

    With them the mean number of points beyond an origin.
    """
    counts: list[int] = []
    misses: list[list[float]] = [[] for _ in tried]
    slopes: list[list[float]] = [[] for _ in tried]
    for share in _ORIGINS:
        before = points.until(share * points.last_step)
        beyond = points.steps > before.last_step if len(before) else np.zeros(len(points), bool)
        if len(before) < _LEAST_AT_ORIGIN or not beyond.any():
            continue
        horizon = np.log(points.steps[beyond] / before.last_step)
        counts.append(int(beyond.sum()))
        unit = np.abs(points.values[beyond]) if is_relative(points) else 1.0
        early = CurveHorizon(before.last_step, span.planned_steps, span.schedule)
        for index, family in enumerate(tried):
            ahead = fit(before, family, early).values(points.steps[beyond])
            off = np.abs(ahead - points.values[beyond]) / unit
            misses[index].append(float(np.mean(off)))
            slopes[index].append(float(np.sqrt(np.mean(off**2)) / np.mean(horizon)))
    if not misses[0]:
        spread = float(np.ptp(points.values))
        return np.full(len(tried), spread), np.full(len(tried), spread), 0.0
    return (
        np.array([float(np.mean(each)) for each in misses]),
        np.array([float(np.sqrt(np.mean(np.square(each)))) for each in slopes]),
        float(np.mean(counts)),
    )


def reaching_steps(steps: Floats, curves: Floats, target: float, sign: float) -> Floats:
    """For each curve the first step at which it meets the target, between grid points; infinite if never."""
    above = sign * (curves - target)
    met = above <= 0
    first = np.argmax(met, axis=1)
    never = ~met.any(axis=1)
    before = np.maximum(first - 1, 0)
    rows = np.arange(len(curves))
    high, low = above[rows, before], above[rows, first]
    share = np.where(first > 0, high / np.maximum(high - low, 1e-300), 0.0)
    reached = steps[before] + np.clip(share, 0.0, 1.0) * (steps[first] - steps[before])
    return np.asarray(np.where(never, np.inf, reached))


def quantiles_of(values: Floats, weights: Floats) -> Quantiles:
    """p10, p50 and p90 of weighted values; infinite ones count."""
    return Quantiles(*(weighted_quantile(values, weights, share) for share in (0.1, 0.5, 0.9)))


def weighted_quantile(values: Floats, weights: Floats, share: float) -> float:
    """The value below which `share` of the weight lies, between the middles of neighbouring weights.

    Interpolated, since otherwise equal weights make it jump by rounding. Infinite values count; the quantile
    is infinite if they hold more than the rest.
    """
    counted = weights > 0
    values, weights = values[counted], weights[counted]
    if not len(values):
        return math.nan
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order] / weights.sum()
    finite = np.isfinite(values)
    if weights[finite].sum() < share - ROUNDING:
        return math.inf
    middles = np.cumsum(weights) - 0.5 * weights
    return float(np.interp(share, middles[finite], values[finite]))
