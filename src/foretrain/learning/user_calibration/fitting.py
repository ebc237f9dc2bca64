"""Constants of CPU workers fitted to runs: robust least squares of relative errors, with weak priors.

With x_j = log(θ_j / θ⁰_j), θ⁰ and σ_j of `cpu_workers.prior`, the fit minimises

    Σ_i ρ( (log t_i(θ) - log t_i) / s ) + Σ_j (x_j / σ_j)²        ρ: soft l1, linear for large errors

so constants stay positive, one bad run moves nothing, and constants on which the runs are silent stay where
they are. The spread of what remains comes from predicting each model by a fit to all the others.

Reference for ρ: P. J. Huber, "Robust estimation of a location parameter", Ann. Math. Stat. 35, 1964.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

import numpy as np

from foretrain.errors import InvalidRequest
from foretrain.estimates import Z90
from foretrain.learning.user_calibration.samples import RunSample
from foretrain.prediction.corrections.workers import ModelDeviation, WorkerCalibration, deviation
from foretrain.prediction.operators.pricing import Floats
from foretrain.prediction.step.cpu_workers import CONSTANTS, WorkerConstants, prior, worker_time

_RUN_SPREAD = 0.05
"""Scale of the relative errors at which their cost turns from quadratic to linear."""
_FEWEST_RUNS, _FEWEST_MODELS = 4, 2
"""One model is held out to judge the fit, so that two are the least."""
_MOST_FOLDS = 8
_TOLERANCE = 1e-11
"""Small, so that the constants do not depend on where the search was stopped."""
_NORMAL = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""


@dataclass(frozen=True, slots=True)
class FitAccuracy:
    """Errors of predictions: mean, median and signed median as shares of the measured time.

    `coverage` is the share of measurements within the 80 % intervals.
    """

    cases: int
    mean: float
    median: float
    bias: float
    coverage: float


@dataclass(frozen=True)
class WorkerFit:
    """A calibration, the samples it was fitted to, and its accuracy.

    `left_out` predicts each model by a fit to the others. `held_out` is on models that took no part at all;
    `before` are the predictions made before those runs, where there are any.
    """

    calibration: WorkerCalibration
    samples: int
    models: tuple[str, ...]
    left_out: FitAccuracy
    before: FitAccuracy | None
    held_out_models: tuple[str, ...] = ()
    held_out: FitAccuracy | None = None
    held_out_before: FitAccuracy | None = None


def fit_constants(samples: Sequence[RunSample], near: WorkerConstants | None = None) -> WorkerConstants:
    """The constants that explain the runs best; the search starts at the prior, or near other constants."""
    from scipy.optimize import least_squares

    known = prior()
    start, spread = _values(known.constants), _values(known.spread)
    measured = np.log([sample.measured_seconds for sample in samples])

    def residuals(x: Floats) -> Floats:
        constants = _constants(start * np.exp(x))
        predicted = [math.log(worker_time(sample.step, constants).seconds) for sample in samples]
        errors = (np.array(predicted) - measured) / _RUN_SPREAD
        return np.append(_soft(errors), x / spread)

    begin = np.zeros(len(start)) if near is None else np.log(_values(near) / start)
    # Central differences: with one-sided ones the search stops where the noise of the gradient says so.
    fitted = least_squares(
        residuals, begin, "3-point", x_scale=spread, ftol=_TOLERANCE, xtol=_TOLERANCE, gtol=_TOLERANCE
    )
    return _constants(start * np.exp(fitted.x))


def _soft(errors: Floats) -> Floats:
    """Signed roots of twice the soft l1 cost: squared and summed they are that cost."""
    cost: Floats = np.sign(errors) * np.sqrt(2 * (np.sqrt(1 + errors**2) - 1))
    return cost


def _values(constants: WorkerConstants) -> Floats:
    return np.array([getattr(constants, name) for name in CONSTANTS])


def _constants(values: Floats) -> WorkerConstants:
    return WorkerConstants(**dict(zip(CONSTANTS, values.tolist(), strict=True)))


def fit_workers(samples: Sequence[RunSample], held_out: Collection[str] = ()) -> WorkerFit:
    """The calibration of a machine by runs, without those of the models in `held_out`."""
    used = [sample for sample in samples if sample.model not in held_out]
    apart = [sample for sample in samples if sample.model in held_out]
    models = tuple(sorted({sample.model for sample in used}))
    if len(used) < _FEWEST_RUNS or len(models) < _FEWEST_MODELS:
        raise InvalidRequest(
            f"{len(used)} runs of {len(models)} models are too few to calibrate a machine; at least "
            f"{_FEWEST_RUNS} runs of {_FEWEST_MODELS} models are needed, without those held out"
        )
    constants = fit_constants(used)
    off = _left_out(used, constants)
    between, within = _spreads(used, off)
    calibration = WorkerCalibration(
        constants=constants,
        cores=used[0].step.cores,
        model_spread=between,
        run_spread=within,
        models=_models(used, constants),
        strategies=frozenset(sample.step.strategy for sample in used),
        settings={
            sample.key: value for sample, value in zip(used, _log_ratios(used, constants), strict=True)
        },
    )
    unseen = replace(calibration, models={}, settings={})
    return WorkerFit(
        calibration=calibration,
        samples=len(used),
        models=models,
        left_out=_accuracy(off, math.hypot(between, within)),
        before=_before(used),
        held_out_models=tuple(sorted({sample.model for sample in apart})),
        held_out=accuracy(apart, unseen) if apart else None,
        held_out_before=_before(apart),
    )


def _log_ratios(samples: Sequence[RunSample], constants: WorkerConstants) -> list[float]:
    """log(measured / predicted) of each sample."""
    return [
        math.log(sample.measured_seconds / worker_time(sample.step, constants).seconds) for sample in samples
    ]


def _left_out(samples: Sequence[RunSample], near: WorkerConstants) -> list[float]:
    """log(measured / predicted) of each sample by a fit to runs of other models."""
    off = [0.0] * len(samples)
    for fold in _folds(samples):
        constants = fit_constants([sample for sample in samples if sample.model not in fold], near)
        for index, sample in enumerate(samples):
            if sample.model in fold:
                off[index] = math.log(sample.measured_seconds / worker_time(sample.step, constants).seconds)
    return off


def _folds(samples: Sequence[RunSample]) -> Iterator[frozenset[str]]:
    """Models that are left out together: each alone, or in groups where there are many."""
    models = sorted({sample.model for sample in samples})
    count = min(len(models), _MOST_FOLDS)
    for fold in range(count):
        yield frozenset(models[fold::count])


def _spreads(samples: Sequence[RunSample], off: Sequence[float]) -> tuple[float, float]:
    """Robust standard deviations between models and between the runs of one model."""
    groups: dict[str, list[float]] = {}
    for sample, value in zip(samples, off, strict=True):
        groups.setdefault(sample.model, []).append(value)
    middles = {model: median(values) for model, values in groups.items()}
    within = _deviation([value - middles[model] for model, values in groups.items() for value in values])
    total = _quantile_spread(off)
    return math.sqrt(max(total**2 - within**2, 0.0)), within


def _deviation(values: Sequence[float]) -> float:
    return _NORMAL * float(np.median(np.abs(values)))


def _quantile_spread(off: Sequence[float]) -> float:
    """The standard deviation at which 80 % of the deviations are within the interval of a prediction."""
    return float(np.quantile(np.abs(off), 0.8)) / Z90


def _models(samples: Sequence[RunSample], constants: WorkerConstants) -> dict[str, ModelDeviation]:
    groups: dict[str, list[float]] = {}
    for sample, value in zip(samples, _log_ratios(samples, constants), strict=True):
        groups.setdefault(sample.model, []).append(value)
    return {model: ModelDeviation(median(values), len(values)) for model, values in sorted(groups.items())}


def accuracy(samples: Sequence[RunSample], known: WorkerCalibration) -> FitAccuracy:
    """How well a calibration predicts runs."""
    off, inside = [], []
    for sample in samples:
        expected = deviation(known, sample.model, sample.key)
        value = math.log(sample.measured_seconds / worker_time(sample.step, known.constants).seconds)
        off.append(value - expected.mean)
        inside.append(abs(off[-1]) <= Z90 * expected.spread)
    return _summary(off, inside)


def _accuracy(off: Sequence[float], spread: float) -> FitAccuracy:
    return _summary(off, [abs(value) <= Z90 * spread for value in off])


def _before(samples: Sequence[RunSample]) -> FitAccuracy | None:
    """The accuracy of predictions made before the runs; None without any."""
    made = [(sample.measured_seconds, sample.before) for sample in samples if sample.before is not None]
    if not made:
        return None
    off = [math.log(measured / before.p50_seconds) for measured, before in made]
    return _summary(off, [before.p10_seconds <= measured <= before.p90_seconds for measured, before in made])


def _summary(off: Sequence[float], inside: Sequence[bool]) -> FitAccuracy:
    """Errors from log(measured / predicted)."""
    errors = [math.exp(-value) - 1 for value in off]
    return FitAccuracy(
        cases=len(off),
        mean=fmean(abs(error) for error in errors),
        median=median(abs(error) for error in errors),
        bias=median(errors),
        coverage=fmean(map(float, inside)),
    )
