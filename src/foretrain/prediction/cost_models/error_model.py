"""How the errors of predictions hang together: a hierarchical normal model of log(measured / predicted).

The logarithm of measured over predicted time of a step in one user's hands is a sum of effects,

    r = setup + device + precision + variant + model + combinations of these + Σ_k b_k · x_k + e

each normal around zero. `setup` is what all steps of a user share: host, framework, cluster, habits. The x_k
are the shares of the step by part (launches, exchanges, products, convolutions, attention, memory-bound
operators), so that b_k is the logarithm of a factor on that part: a slow host shows in steps that are bound
by launches, and is not blamed on the others. e is a configuration's own. The variances are fitted to public
measurements (`calibrations/transfer.json`) as a source left out would see them.

Given timings, the effect on another step is normal too (best linear unbiased prediction),

    mean = kᵀ K⁻¹ r        variance = k** - kᵀ K⁻¹ k

Timings far beyond the variances say more about their own configuration than about others: they are cut to 1.5
deviations, and e has the tails of Student's t with `_FREEDOM` degrees (variances of single timings are raised
until consistent). Everything is continuous in times and shares.

A correction must not hurt, so it is smaller than the mean in three ways:

1. Of a lognormal time, the prediction with the least expected relative error |predicted / measured - 1| is
   exp(mean - variance). The correction is the point nearest to it between none and the mean.
2. It counts by mean² / (mean² + variance), the share of the expected square that the mean explains: a mean
   within its own uncertainty of zero moves nothing, one far beyond it moves fully.
3. It counts as far as it would have lowered the errors of the user's own timings, each left out in turn
   (`UserErrors`).

References: C. R. Henderson, "Best linear unbiased estimation and prediction under a selection model",
Biometrics 31, 1975. K. Lange et al., "Robust statistical modeling using the t distribution", JASA 84, 1989.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any

import numpy as np

from foretrain.prediction.cost_models.priced_step import PricedStep
from foretrain.prediction.operators.listing import KINDS, Floats
from foretrain.workloads.ops import Kind

_FREEDOM = 4.0
_ROUNDS = 100
_CONVERGED = 1e-10
_SAME_SIZE = 1e-3
"""Difference of the logarithms of two predictions within which they are of the same configuration."""
_OCTAVE = math.log(2.0)
_MOST_DEVIATIONS = 1.5
"""Timings farther off count as this far for other configurations: a stalled run, or another program."""
_SHARES = 11
_ERROR_SCALE = 0.1
"""Relative error of a timing left out that counts as much as the prior; from 0.05 to 0.2 hardly matters."""
_FIRST_TRUST_ELSEWHERE, _FIRST_TRUST_IN_MODEL = -0.7, 2.0
"""Powers of the prior of trust: mean 1/6 for models not timed, 3/4 for those timed. With more for the former,
one timing of an unusual model would make sources worse that are predicted well (the suite `calibrate`)."""
_LARGEST_LOG = 50.0
_LEAST_OWN = 1e-12
"""So that timings of which one is as good as the other have a solution."""


@dataclass(frozen=True, slots=True)
class StepTraits:
    """What a step spends its time on, as shares of it; `host` is the time of launches, hidden or not."""

    host: float = 0.0
    network: float = 0.0
    products: float = 0.0
    convolutions: float = 0.0
    attention: float = 0.0
    memory_bound: float = 0.0


def step_traits(step: PricedStep, exposed_share: float = 0.0) -> StepTraits:
    """The traits of a priced step of which `exposed_share` is spent waiting for other devices."""
    seconds = step.priced.seconds
    device, host = float(seconds.sum()), float(step.launching.sum())
    longest, own = max(device, host), 1 - exposed_share
    if longest <= 0:
        return StepTraits(network=exposed_share)
    by_kind = np.bincount(step.priced.listing.kinds, seconds, len(KINDS))

    def share(*kinds: Kind) -> float:
        return own * sum(float(by_kind[KINDS.index(kind)]) for kind in kinds) / longest

    products = share(Kind.LINEAR, Kind.MATMUL, Kind.RNN)
    convolutions, attention = share(Kind.CONVOLUTION), share(Kind.ATTENTION)
    rest = own * device / longest - products - convolutions - attention
    return StepTraits(own * host / longest, exposed_share, products, convolutions, attention, max(0.0, rest))


@dataclass(frozen=True, slots=True)
class StepKey:
    """What a timing says about its step: `variant` is every other option, such as compile or the strategy."""

    model: str
    device: str
    precision: str = ""
    variant: str = ""


@dataclass(frozen=True, slots=True)
class StepError:
    """A step with its prediction; `log_ratio` is log(measured / predicted), 0 for a step not measured."""

    key: StepKey
    predicted_seconds: float
    traits: StepTraits = StepTraits()
    log_ratio: float = 0.0


@dataclass(frozen=True, slots=True)
class Variances:
    """Variances of the effects on log(measured / predicted); those from `host` on are of factors of parts.

    `combination` is of model, device, precision and variant together; `size` of the same at another size of
    the step, where it decays by e with each octave of the predicted time. `own` is of a configuration.
    """

    setup: float = 0.0
    device: float = 0.0
    precision: float = 0.0
    variant: float = 0.0
    device_precision: float = 0.0
    model: float = 0.0
    model_device: float = 0.0
    combination: float = 0.0
    size: float = 0.0
    host: float = 0.0
    network: float = 0.0
    products: float = 0.0
    convolutions: float = 0.0
    attention: float = 0.0
    memory_bound: float = 0.0
    own: float = 0.0


TERMS = tuple(each.name for each in fields(Variances))
SHARED = TERMS[:-1]
"""All but `own`, which no other configuration shares."""


@dataclass(frozen=True, eq=False)
class _Columns:
    models: np.ndarray[Any, Any]
    devices: np.ndarray[Any, Any]
    precisions: np.ndarray[Any, Any]
    variants: np.ndarray[Any, Any]
    sizes: Floats
    traits: Floats


def _columns(steps: Sequence[StepError]) -> _Columns:
    return _Columns(
        np.array([step.key.model for step in steps], object),
        np.array([step.key.device for step in steps], object),
        np.array([step.key.precision for step in steps], object),
        np.array([step.key.variant for step in steps], object),
        np.array([math.log(step.predicted_seconds) for step in steps]),
        np.array([astuple(step.traits) for step in steps], float).reshape(
            len(steps), len(fields(StepTraits))
        ),
    )


def shared_terms(steps: Sequence[StepError], others: Sequence[StepError]) -> Floats:
    """For each of `SHARED`, by how much steps share its effect with others: (terms, steps, others)."""
    a, b = _columns(steps), _columns(others)

    def same(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> Floats:
        return np.asarray(one[:, None] == other[None, :], float)

    model, device = same(a.models, b.models), same(a.devices, b.devices)
    precision, variant = same(a.precisions, b.precisions), same(a.variants, b.variants)
    all_of_it = model * device * precision * variant
    apart = np.abs(a.sizes[:, None] - b.sizes[None, :])
    listed = [
        np.ones(model.shape), device, precision, variant, device * precision, model, model * device,
        all_of_it, all_of_it * np.exp(-apart / _OCTAVE),
        *(a.traits[:, place, None] * b.traits[None, :, place] for place in range(a.traits.shape[1])),
    ]  # fmt: skip
    return np.stack(listed)


def own_terms(step: StepError) -> Floats:
    """What a step shares with itself, for each of `SHARED`."""
    traits = astuple(step.traits)
    return np.array([*(1.0 for _ in range(len(SHARED) - len(traits))), *(share**2 for share in traits)])


def _same_configuration(steps: Sequence[StepError], others: Sequence[StepError]) -> Floats:
    """1 for the same configuration, falling to 0 within `_SAME_SIZE` of its prediction."""
    a, b = _columns(steps), _columns(others)
    keys, known = [step.key for step in steps], [other.key for other in others]
    same = np.array([[key == other for other in known] for key in keys], float)
    nearness: Floats = same * np.exp(-(((a.sizes[:, None] - b.sizes[None, :]) / _SAME_SIZE) ** 2))
    return nearness


@dataclass(frozen=True, slots=True)
class Posterior:
    """Mean and variance of log(measured / predicted) of a step; `prior_variance` is that without timings."""

    mean: float
    variance: float
    prior_variance: float

    @property
    def narrowing(self) -> float:
        """The width of an interval relative to that without timings."""
        return math.sqrt(self.variance / self.prior_variance) if self.prior_variance > 0 else 1.0


class TimedErrors:
    """Timings of one user, with what they say about any other step."""

    def __init__(self, timings: Sequence[StepError], variances: Variances) -> None:
        self._timings, self._variances = tuple(timings), variances
        self._shared = np.array(astuple(variances)[:-1])
        self._between = np.tensordot(self._shared, shared_terms(timings, timings), 1)
        self._measured = np.array([timing.log_ratio for timing in timings])
        most = _MOST_DEVIATIONS * np.sqrt(np.diag(self._between) + variances.own)
        self._ratios = np.clip(self._measured, -most, most)
        self._own = self._own_variances()
        self._scale = self._scale_of_errors()

    def _own_variances(self) -> Floats:
        """The variance of each timing's own part: raised for those that the others cannot explain.

        Expectation maximisation for Student's t, from the normal model on; the weights are within (0, 1].
        """
        own = max(self._variances.own, _LEAST_OWN)
        each = np.full(len(self._timings), own)
        for _ in range(_ROUNDS):
            gain = np.linalg.solve(self._between + np.diag(each), self._between).T
            off = self._ratios - gain @ self._ratios
            uncertain = np.diag(self._between - gain @ self._between)
            squares = off**2 + np.maximum(uncertain, 0.0)
            new = own * np.maximum(1.0, (_FREEDOM + squares / own) / (_FREEDOM + 1))
            converged = bool(np.all(np.abs(new / each - 1) < _CONVERGED))
            each = new
            if converged:
                break
        return each

    def _scale_of_errors(self) -> float:
        """By how much all variances are larger than expected, as the timings themselves say.

        Some users' errors are larger throughout. With a scale that is inverse chi-squared with `_FREEDOM`
        degrees, the posterior is Student's t with this factor on its variance.
        """
        count = len(self._timings)
        if not count:
            return 1.0
        solved = np.linalg.solve(self._between + np.diag(self._own), self._measured)
        return (_FREEDOM + float(self._measured @ solved)) / (_FREEDOM + count)

    def posteriors(self, steps: Sequence[StepError]) -> list[Posterior]:
        """What the timings say about the errors of steps, each by itself."""
        priors = [float(self._shared @ own_terms(step)) for step in steps]
        if not self._timings:
            return [
                Posterior(0.0, prior + self._variances.own, prior + self._variances.own) for prior in priors
            ]
        nearness = _same_configuration(steps, self._timings)
        same = nearness * self._own
        towards = np.tensordot(self._shared, shared_terms(steps, self._timings), 1) + same
        weights = np.linalg.solve(self._between + np.diag(self._own), towards.T)
        own = np.maximum(self._variances.own, same.max(axis=1))
        nearest, total = nearness.max(axis=1), np.maximum(nearness.sum(axis=1), _LEAST_OWN)
        measured = nearness @ self._measured / total  # of a timed configuration all of it, however far off
        means = (1 - nearest) * (self._ratios @ weights) + nearest * measured
        explained = (towards * weights.T).sum(axis=1)
        return [
            Posterior(
                float(mean),
                self._scale * max(0.0, prior + of_its_own - float(known)),
                prior + self._variances.own,
            )
            for mean, prior, of_its_own, known in zip(means, priors, own, explained, strict=True)
        ]

    def posterior(self, step: StepError) -> Posterior:
        """What the timings say about the error of a step."""
        return self.posteriors((step,))[0]


def cautious_shift(posterior: Posterior) -> float:
    """The correction of log(predicted) before it is tested on the user's other timings; see the module."""
    mean, variance = posterior.mean, posterior.variance
    least_error = max(0.0, mean - variance) if mean > 0 else mean
    square = mean * mean
    return least_error * square / (square + variance) if square > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Shift:
    """The correction of a step: log(corrected / predicted), and the standard deviation of what is left."""

    log_factor: float
    deviation: float
    prior_deviation: float

    @property
    def narrowing(self) -> float:
        """The width of an interval relative to that without timings; it may be wider."""
        return self.deviation / self.prior_deviation if self.prior_deviation > 0 else 1.0


class UserErrors:
    """All timings of a user: corrections of other steps, trusted as far as they hold on the user's own.

    Trust is the share of a correction that is applied, from 0 to 1. It is the mean of its distribution given
    how large the errors of the timings are when each is corrected by the others alone:

        p(share) ∝ prior(share) · exp(- Σ errors(share) / `_ERROR_SCALE`)

    For models that were not timed, whole models are left out; for models that were, single timings of models
    with several. An average instead of a choice keeps corrections continuous in the times.
    """

    def __init__(self, timings: Sequence[StepError], variances: Variances) -> None:
        self._timings = tuple(timings)
        self._errors = TimedErrors(timings, variances)
        self._models = frozenset(timing.key.model for timing in timings)
        by_model = [
            (
                [one for one in timings if one.key.model != model],
                [one for one in timings if one.key.model == model],
            )
            for model in sorted(self._models)
        ]
        one_by_one = [
            ([*timings[:place], *timings[place + 1 :]], [timing])
            for place, timing in enumerate(timings)
            if sum(other.key.model == timing.key.model for other in timings) > 1
        ]
        if len(by_model) == 1:
            by_model = []
        self.trust_elsewhere = _trust(by_model, variances, _FIRST_TRUST_ELSEWHERE)
        self.trust_in_model = _trust(one_by_one, variances, _FIRST_TRUST_IN_MODEL)

    def shifts(self, steps: Sequence[StepError]) -> list[Shift]:
        """The corrections of steps; one that was itself timed takes its time."""
        if not steps:
            return []
        same = _same_configuration(steps, self._timings).max(axis=1, initial=0.0).tolist()
        listed = []
        for step, posterior, measured in zip(steps, self._errors.posteriors(steps), same, strict=True):
            trust = self.trust_in_model if step.key.model in self._models else self.trust_elsewhere
            share = trust + (1 - trust) * measured
            cautious = measured * posterior.mean + (1 - measured) * cautious_shift(posterior)
            shift = share * cautious
            left = posterior.variance + (posterior.mean - shift) ** 2
            listed.append(Shift(shift, math.sqrt(left), math.sqrt(posterior.prior_variance)))
        return listed

    def shift(self, step: StepError) -> Shift:
        """The correction of a step."""
        return self.shifts((step,))[0]


def _trust(
    folds: Sequence[tuple[Sequence[StepError], Sequence[StepError]]], variances: Variances, power: float
) -> float:
    """The share of corrections that pays on timings left out; prior(share) ∝ share^power."""
    shares = np.linspace(0.0, 1.0, _SHARES)
    log_weights = power * np.log(np.maximum(shares, 1 / _SHARES**2))
    for known, left_out in folds:
        shifts = np.array(
            [cautious_shift(each) for each in TimedErrors(known, variances).posteriors(left_out)]
        )
        ratios = np.array([each.log_ratio for each in left_out])
        errors = np.abs(np.expm1(np.minimum(shares[:, None] * shifts - ratios, _LARGEST_LOG)))
        log_weights = log_weights - errors.mean(axis=1) / _ERROR_SCALE
    weights = np.exp(log_weights - log_weights.max())
    return float(weights @ shares / weights.sum())
