"""How the errors of predictions hang together: a hierarchical normal model of log(measured / predicted).

The logarithm of measured over predicted time of a step in one user's hands is a sum of effects,

    r = setup + device + precision + variant + family + model + combinations of these + Σ_k b_k · x_k + e

each normal around zero. `setup` is what all steps of a user share: host, framework, cluster, habits. The x_k
are the shares of the step by part (launches, exchanges, products, convolutions, attention, memory-bound
operators), so that b_k is the logarithm of a factor on that part: a slow host shows in steps that are bound
by launches, and is not blamed on the others. `length` is the logarithm of the predicted time: what a program
adds to every step, such as reading the loss, shows in short ones. e is a configuration's own. The variances
are fitted to public measurements (`calibrations/transfer.json`) as a source left out would see them.

Given timings, the effect on another step is normal too (best linear unbiased prediction),

    mean = kᵀ K⁻¹ r        variance = s · (k** - kᵀ K⁻¹ k)        s = (ν + rᵀ K⁻¹ r) / (ν + n)

where s is by how much all errors of this user are larger than those of others: Student's t with ν = 4.
Timings beyond 1.5 deviations, as large as s of the others says, are cut to that. Everything is continuous.

A correction must not hurt, so it is smaller than the mean in three ways:

1. Of a lognormal time, the prediction with the least expected relative error |predicted / measured - 1| is
   exp(mean - variance). The correction is the point nearest to it between none and the mean.
2. It counts by mean² / (mean² + d · variance), the share of the expected square that the mean explains: a
   mean within its own uncertainty of zero moves little, one far beyond it moves fully. d = (ν + 1) / (ν + n)
   is 1 for one timing and falls as more say how this user's errors are shared.
3. It counts by the probability that corrections pay in this user's hands at all: a prior, and by how much the
   user's own timings are closer when corrected by the others (`UserErrors`).

References: C. R. Henderson, "Best linear unbiased estimation and prediction under a selection model",
Biometrics 31, 1975. S. Sundararajan and S. S. Keerthi, "Predictive approaches for choosing hyperparameters
in Gaussian processes", Neural Computation 13, 2001 (timings left out in closed form).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any

import numpy as np

from foretrain.prediction.cost_models.priced_step import PricedStep
from foretrain.prediction.operators.listing import KINDS, Floats
from foretrain.workloads.ops import Kind

_FREEDOM = 4.0
_SAME_SIZE = 1e-3
"""Difference of the logarithms of two predictions within which they are of the same configuration."""
_OCTAVE = math.log(2.0)
_TYPICAL_SECONDS, _LONGEST_LOG = 0.1, 4.0
"""`length` is 0 at the first, and -1 and 1 at e to the power of the second below and above it."""
_MOST_DEVIATIONS = 1.5
"""Timings farther off count as this far for other configurations: a stalled run, or another program."""
_PRIOR_ELSEWHERE, _PRIOR_IN_MODEL = 0.25, 0.4
"""Probability before any evidence that corrections pay, for models not timed and for those timed. With more,
one timing of an unusual model makes sources worse that are predicted well (suite `own_timings`)."""
_AFTER_SOURCE, _LETTERS = re.compile(r".*[:/]"), re.compile(r"[a-z]+")
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

    @property
    def family(self) -> str:
        """The letters that the name of its model begins with: `resnet` of `timm:resnet101d`."""
        name = _AFTER_SOURCE.sub("", self.model).lower()
        letters = _LETTERS.match(name)
        return letters.group() if letters else name


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
    length: float = 0.0
    device: float = 0.0
    precision: float = 0.0
    variant: float = 0.0
    device_precision: float = 0.0
    family: float = 0.0
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
    families: np.ndarray[Any, Any]
    models: np.ndarray[Any, Any]
    devices: np.ndarray[Any, Any]
    precisions: np.ndarray[Any, Any]
    variants: np.ndarray[Any, Any]
    sizes: Floats
    lengths: Floats
    traits: Floats


def _columns(steps: Sequence[StepError]) -> _Columns:
    sizes = np.array([math.log(step.predicted_seconds) for step in steps])
    return _Columns(
        np.array([step.key.family for step in steps], object),
        np.array([step.key.model for step in steps], object),
        np.array([step.key.device for step in steps], object),
        np.array([step.key.precision for step in steps], object),
        np.array([step.key.variant for step in steps], object),
        sizes,
        _length(sizes),
        np.array([astuple(step.traits) for step in steps], float).reshape(
            len(steps), len(fields(StepTraits))
        ),
    )


def _length(log_seconds: Floats) -> Floats:
    return np.clip((log_seconds - math.log(_TYPICAL_SECONDS)) / _LONGEST_LOG, -1.0, 1.0)


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
        np.ones(model.shape), np.outer(a.lengths, b.lengths), device, precision, variant, device * precision,
        same(a.families, b.families), model, model * device, all_of_it, all_of_it * np.exp(-apart / _OCTAVE),
        *(a.traits[:, place, None] * b.traits[None, :, place] for place in range(a.traits.shape[1])),
    ]  # fmt: skip
    return np.stack(listed)


def own_terms(step: StepError) -> Floats:
    """What a step shares with itself, for each of `SHARED`."""
    length = float(_length(np.array(math.log(step.predicted_seconds))))
    traits = astuple(step.traits)
    others = len(SHARED) - len(traits) - 2
    return np.array([1.0, length**2, *(1.0 for _ in range(others)), *(share**2 for share in traits)])


def _same_configuration(steps: Sequence[StepError], others: Sequence[StepError]) -> Floats:
    """1 for the same configuration, falling to 0 within `_SAME_SIZE` of its prediction."""
    a, b = _columns(steps), _columns(others)
    keys, known = [step.key for step in steps], [other.key for other in others]
    same = np.array([[key == other for other in known] for key in keys], float)
    nearness: Floats = same * np.exp(-(((a.sizes[:, None] - b.sizes[None, :]) / _SAME_SIZE) ** 2))
    return nearness


@dataclass(frozen=True, slots=True)
class Posterior:
    """Mean and variance of log(measured / predicted) of a step; `prior_variance` is that without timings.

    `doubt` is d of the module: how far the mean must be beyond its uncertainty to count.
    """

    mean: float
    variance: float
    prior_variance: float
    doubt: float = 1.0

    @property
    def cautious_shift(self) -> float:
        """The correction of log(predicted) before it is tested on other timings; see the module."""
        return float(_cautious(np.array(self.mean), np.array(self.variance), self.doubt))


def _cautious(means: Floats, variances: Floats, doubt: float) -> Floats:
    least_error = np.where(means > 0, np.maximum(0.0, means - variances), means)
    squares = means * means
    return np.asarray(least_error * squares / np.maximum(squares + doubt * variances, _LEAST_OWN), float)


def _scale(quadratic: Floats, count: int) -> Floats:
    """By how much errors are larger than expected, where r' K⁻¹ r of `count` timings is `quadratic`."""
    return np.asarray((_FREEDOM + quadratic) / (_FREEDOM + count), float)


def _doubt(count: int) -> float:
    return (_FREEDOM + 1) / (_FREEDOM + count)


class TimedErrors:
    """Timings of one user, with what they say about any other step."""

    def __init__(self, timings: Sequence[StepError], variances: Variances) -> None:
        self._timings, self._variances = tuple(timings), variances
        self._shared = np.array(astuple(variances)[:-1])
        self._own = max(variances.own, _LEAST_OWN)
        covariance = np.tensordot(self._shared, shared_terms(timings, timings), 1)
        covariance += self._own * np.eye(len(self._timings))
        self._inverse = np.linalg.inv(covariance)
        self._measured = np.array([timing.log_ratio for timing in timings])
        quadratic = float(self._measured @ self._inverse @ self._measured)
        self._scale = float(_scale(np.array(quadratic), len(self._timings)))
        own_part = (self._inverse @ self._measured) ** 2 / np.diag(self._inverse)
        scales = _scale(np.maximum(0.0, quadratic - own_part), len(self._timings) - 1)  # as the others say
        most = _MOST_DEVIATIONS * np.sqrt(np.diag(covariance) * np.maximum(1.0, scales))
        self._ratios = np.clip(self._measured, -most, most)

    def posteriors(self, steps: Sequence[StepError]) -> list[Posterior]:
        """What the timings say about the errors of steps, each by itself."""
        priors = [float(self._shared @ own_terms(step)) + self._own for step in steps]
        if not self._timings:
            return [Posterior(0.0, prior, prior) for prior in priors]
        nearness = _same_configuration(steps, self._timings)
        towards = np.tensordot(self._shared, shared_terms(steps, self._timings), 1) + nearness * self._own
        weights = towards @ self._inverse
        nearest, total = nearness.max(axis=1), np.maximum(nearness.sum(axis=1), _LEAST_OWN)
        measured = nearness @ self._measured / total  # of a timed configuration all of it, however far off
        means = (1 - nearest) * (weights @ self._ratios) + nearest * measured
        explained = (towards * weights).sum(axis=1)
        doubt = _doubt(len(self._timings))
        return [
            Posterior(mean, self._scale * max(0.0, prior - known), prior, doubt)
            for mean, prior, known in zip(means.tolist(), priors, explained.tolist(), strict=True)
        ]

    def posterior(self, step: StepError) -> Posterior:
        """What the timings say about the error of a step."""
        return self.posteriors((step,))[0]

    def errors_left_out(self, places: Sequence[int]) -> tuple[float, float]:
        """Mean relative error of some timings: as predicted, and as corrected by all others.

        With P = K⁻¹, timings B differ from what the others say of them by (P_BB)⁻¹ (P r)_B.
        """
        inside = np.linalg.inv(self._inverse[np.ix_(places, places)])
        off = inside @ (self._inverse @ self._ratios)[places]
        count = len(self._timings) - len(places)
        quadratic = self._ratios @ self._inverse @ self._ratios - off @ np.linalg.solve(inside, off)
        variances = _scale(np.maximum(0.0, quadratic), count) * np.diag(inside)
        shifts = _cautious(self._ratios[places] - off, variances, _doubt(count))
        ratios = self._measured[places]
        errors = (np.abs(np.expm1(np.minimum(each - ratios, _LARGEST_LOG))).mean() for each in (0.0, shifts))
        before, after = (float(each) for each in errors)
        return before, after


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

    Trust is the probability that corrections pay, and the share of them that is applied. Its logarithmic odds
    are those of the prior and the gain, over all timings left out in turn, in units of their mean error:

        ln(trust / (1 - trust)) = ln(prior / (1 - prior)) + Σ (error before - error after) / mean error before

    For models that were not timed, whole models are left out; for models that were, single timings of models
    with several. A probability instead of a choice keeps corrections continuous in the times.
    """

    def __init__(self, timings: Sequence[StepError], variances: Variances) -> None:
        self._timings = tuple(timings)
        self._errors = TimedErrors(timings, variances)
        by_model: dict[str, list[int]] = {}
        for place, timing in enumerate(timings):
            by_model.setdefault(timing.key.model, []).append(place)
        self._models = frozenset(by_model)
        one_by_one = [[place] for places in by_model.values() if len(places) > 1 for place in places]
        whole = [by_model[model] for model in sorted(by_model)] if len(by_model) > 1 else []
        self.trust_elsewhere = self._trust(whole, _PRIOR_ELSEWHERE)
        self.trust_in_model = self._trust(one_by_one, _PRIOR_IN_MODEL)

    def _trust(self, folds: Sequence[Sequence[int]], prior: float) -> float:
        errors = [self._errors.errors_left_out(places) for places in folds]
        before = sum(error for error, _ in errors)
        if before <= 0:
            return prior
        gain = len(errors) * (before - sum(error for _, error in errors)) / before
        return 1 / (1 + (1 - prior) / prior * math.exp(min(-gain, _LARGEST_LOG)))

    def shifts(self, steps: Sequence[StepError]) -> list[Shift]:
        """The corrections of steps; one that was itself timed takes its time."""
        if not steps:
            return []
        same = _same_configuration(steps, self._timings).max(axis=1, initial=0.0).tolist()
        listed = []
        for step, posterior, measured in zip(steps, self._errors.posteriors(steps), same, strict=True):
            trust = self.trust_in_model if step.key.model in self._models else self.trust_elsewhere
            shift = measured * posterior.mean + (1 - measured) * trust * posterior.cautious_shift
            left = posterior.variance + (posterior.mean - shift) ** 2
            listed.append(Shift(shift, math.sqrt(left), math.sqrt(posterior.prior_variance)))
        return listed

    def shift(self, step: StepError) -> Shift:
        """The correction of a step."""
        return self.shifts((step,))[0]
