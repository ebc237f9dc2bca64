"""Fits a form to timings: the most likely parameters under a prior, their uncertainty, and held-out errors.

    minimise  Σ ( (log predicted - log timed) / noise )²  +  (θ - μ)ᵀ Σ⁻¹ (θ - μ)

The prior is what is known of the parameters before a job was timed: a normal distribution, and the noise of
timings. The shipped one of the physical form is the population of jobs it was fitted to
(`calibration.scaling`). A prediction of the job, from its model and hardware, makes a sharper one:
`prior_from_prediction`.

The posterior is taken as normal around the minimum (Laplace), with the curvature of the linearised form. Its
deviations grow where the form leaves residuals larger than the noise.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from foretrain.errors import InvalidData, UnknownName
from foretrain.estimates import Z90, Quantiles
from foretrain.facts.calibrations import calibration_content
from foretrain.learning.scaling.configurations import (
    Columns,
    Placement,
    ScalingConfiguration,
    Timing,
    columns,
    reference_batch,
)
from foretrain.learning.scaling.forms import LEVEL, LEVEL_DEVIATION, Form
from foretrain.prediction.operators.pricing import Floats

FILE = "scaling.json"
FORMAT = 1
Prediction = Callable[[Placement, int], float]
"""Seconds of a step, predicted for a placement and a batch per device."""
_STEP = 1e-6
"""Step of the forward differences that stand for slopes."""
_TOLERANCE = 1e-12
"""Relative change of parameters and of squares at which the search ends: flat minima need it to be small."""
_TRUST = 6.0
"""How many timings the prior's word on the noise is worth."""
_FOLDS = 12


def form_prior(form: Form, cluster: str = "") -> Prior:
    """The shipped prior of a form, of jobs on a cluster if it is named; a wide one if none was learned."""
    learned = _calibration()["forms"].get(form.name)
    if learned is None:
        return wide_prior(form, shipped_noise())
    if cluster:
        if cluster not in learned["clusters"]:
            known = learned["clusters"]
            raise UnknownName("cluster", cluster, known, f"Known by timings: {', '.join(known)}")
        learned = {**learned, **learned["clusters"][cluster]}
    prior = normal_prior(form, learned["means"], learned["deviations"], learned["noise"])
    return replace(prior, one_batch=learned["one_batch"])


def shipped_noise() -> float:
    """Deviation of repeated timings and of what no form explains, in logarithms."""
    return float(_calibration()["noise"])


def wide_prior(form: Form, noise: float) -> Prior:
    """As wide as the form declares."""
    means = {item.name: item.mean for item in form.parameters}
    return normal_prior(form, means, {item.name: item.deviation for item in form.parameters}, noise)


def normal_prior(
    form: Form, means: Mapping[str, float], deviations: Mapping[str, float], noise: float
) -> Prior:
    """Independent parameters; of the level nothing is known."""
    middle = np.array([0.0 if name == LEVEL else means[name] for name in form.names])
    spread = np.array([LEVEL_DEVIATION if name == LEVEL else deviations[name] for name in form.names])
    return Prior(middle, np.diag(spread**2), noise)


def prior_from_prediction(
    form: Form,
    predict_at: Prediction,
    configurations: Sequence[ScalingConfiguration],
    reference_batch: float,
    error: float,
    base: Prior | None = None,
) -> Prior:
    """The prior that a prediction of the same job makes, such as that from its model and hardware.

    The form is fitted to the predictions of `predict_at` for the configurations as to timings whose standard
    deviation is `error` (in logarithms). A prediction can also be wrong by a common factor, so the level gets
    that error once more.
    """
    predicted = [Timing(item, predict_at(item.placement, item.batch)) for item in configurations]
    start = base or form_prior(form)
    seconds = np.log([item.step_seconds for item in predicted])
    at = columns(configurations, reference_batch)
    fitted: Fitted = fit(form, at, seconds, replace(start, noise=error))
    level: Floats = np.zeros_like(fitted.covariance)
    place = form.names.index(LEVEL)
    level[place, place] = error**2
    several = bool(np.ptp(at.relative_batch) > 0)
    return Prior(fitted.values, fitted.covariance + level, start.noise, 0.0 if several else start.one_batch)


@cache
def _calibration() -> Mapping[str, Any]:
    raw = calibration_content(FILE)
    if raw.get("format") != FORMAT:
        raise InvalidData(FILE, f"is of format {raw.get('format')}, not {FORMAT}: write it anew")
    return raw


@dataclass(frozen=True, eq=False)
class Prior:
    """A normal distribution of a form's parameters, and the deviation of timings from it, in logarithms.

    `one_batch` is how far a single batch size lies from the middle of those a job may have, in logarithms.
    """

    means: Floats
    covariance: Floats
    noise: float
    one_batch: float = 0.0


@dataclass(frozen=True, eq=False)
class Fitted:
    """The posterior: values, covariance, and the noise as the residuals leave it."""

    form: Form
    values: Floats
    covariance: Floats
    noise: float

    def log_seconds(self, at: Columns) -> Floats:
        """Medians of the logarithms of step times."""
        return self.form.log_seconds(self.values, at)

    def deviations(self, at: Columns) -> Floats:
        """Standard deviations of the logarithm of a step time that is about to be measured."""
        slopes = jacobian(self.form, self.values, at)
        variances = np.einsum("ij,jk,ik->i", slopes, self.covariance, slopes)
        result: Floats = np.sqrt(np.maximum(variances, 0.0) + self.noise**2)
        return result


def jacobian(form: Form, values: Floats, at: Columns) -> Floats:
    """Slopes of the predicted logarithms in each parameter, by differences."""
    here = form.log_seconds(values, at)
    steps = _STEP * np.eye(len(values))
    slopes = [(form.log_seconds(values + step, at) - here) / _STEP for step in steps]
    return np.stack(slopes, axis=1)


def fit(
    form: Form,
    at: Columns,
    log_seconds: Floats,
    prior: Prior,
    start: Floats | None = None,
    tolerance: float = _TOLERANCE,
) -> Fitted:
    """The posterior of the form's parameters; the search begins at `start`, or at the prior's means."""
    from scipy.optimize import least_squares

    prior = _of_batches(form, prior, at)
    whitening = np.linalg.cholesky(np.linalg.inv(prior.covariance)).T

    def residuals(values: Floats) -> Floats:
        off = (form.log_seconds(values, at) - log_seconds) / prior.noise
        return np.concatenate([off, whitening @ (values - prior.means)])

    def slopes(values: Floats) -> Floats:
        return np.concatenate([jacobian(form, values, at) / prior.noise, whitening])

    first = prior.means.copy() if start is None else start
    if start is None:
        level = form.names.index(LEVEL)
        first[level] += float(np.mean(log_seconds - form.log_seconds(first, at)))
    search = least_squares(residuals, first, slopes, method="lm", xtol=tolerance, ftol=tolerance)
    best_fit: Floats = search.x
    curvature = slopes(best_fit)
    covariance: Floats = np.asarray(np.linalg.inv(curvature.T @ curvature), float)
    squares = float(np.sum(residuals(best_fit)[: len(at)] ** 2))
    wider = max(1.0, (_TRUST + squares) / (_TRUST + len(at)))
    return Fitted(form, best_fit, covariance * wider, prior.noise * math.sqrt(wider))


def _of_batches(form: Form, prior: Prior, at: Columns) -> Prior:
    """One batch size leaves open where it lies among all, so that its share of fixed work is less known."""
    if not form.at_reference_batch or np.ptp(at.relative_batch) > 0:
        return prior
    place = form.names.index(form.at_reference_batch)
    covariance = prior.covariance.copy()
    covariance[place, place] += prior.one_batch**2
    return replace(prior, covariance=covariance)


def step_seconds(
    fitted: Fitted, configurations: Sequence[ScalingConfiguration], reference_batch: float
) -> tuple[Quantiles, ...]:
    """p10, p50 and p90 of each; times are log-normal around the median."""
    at = columns(configurations, reference_batch)
    middle, wide = fitted.log_seconds(at), Z90 * fitted.deviations(at)
    low, median, high = np.exp(middle - wide), np.exp(middle), np.exp(middle + wide)
    return tuple(Quantiles(*each) for each in zip(low.tolist(), median.tolist(), high.tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class LeftOutErrors:
    """A form's errors on timings left out, as shares of what was timed."""

    form: str
    equation: str
    parameters: int
    mean_error: float
    largest_error: float


def leave_out(form: Form, timings: Sequence[Timing], prior: Prior) -> LeftOutErrors:
    """Fit to all timings but one (or a twelfth of many) and predict that one, in turn."""
    places = [item.configuration for item in timings]
    at = columns(places, reference_batch(places))
    seconds = np.log([item.step_seconds for item in timings])
    everything = fit(form, at, seconds, prior).values
    folds = min(len(timings), _FOLDS)
    errors: list[float] = []
    for fold in range(folds):
        kept = [row for row in range(len(timings)) if row % folds != fold]
        left = [row for row in range(len(timings)) if row % folds == fold]
        fitted = fit(form, at.only(kept), seconds[kept], prior, start=everything.copy())
        predicted = fitted.log_seconds(at.only(left))
        errors += np.abs(np.exp(predicted - seconds[left]) - 1).tolist()
    return LeftOutErrors(
        form.name, form.equation, len(form.parameters), statistics.fmean(errors), max(errors)
    )
