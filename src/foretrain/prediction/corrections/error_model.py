"""How the errors of predictions hang together: a hierarchical normal model of log(measured / predicted).

The logarithm of measured over predicted time of a step in one user's hands is a sum of effects,

    r = setup + variant + device and precision + family + model + similar + Σ_k b_k · x_k + e

each normal around zero. `setup` is what all steps of a user share: host, framework, cluster, habits. The x_k
are the shares of the step spent in launches, exchanges and memory-bound operators, so that b_k is the
logarithm of a factor on that part: a slow host shows in steps that are bound by launches, and is not blamed
on the others. `length` is the logarithm of the predicted time: what a program adds to every step, such as
reading the loss, shows in short ones. `similar` is of steps that spend their time on the same parts and take
about as long: it fades as their shares and lengths differ. e is a configuration's own. The variances are
fitted to public measurements (`calibrations/transfer.json`) as a source left out would see them.

Given timings, the effect on another step is normal too (best linear unbiased prediction),

    mean = kᵀ K⁻¹ r        variance = s · (k** - kᵀ K⁻¹ k)        s = (ν + rᵀ K⁻¹ r) / (ν + n)

where s is by how much all errors of this user are larger than those of others: Student's t with ν = 4.
A timing farther than 3 deviations from what the user's other timings say of it is moved to that distance:
one odd timing counts little, and several that agree count fully however far off. Everything is continuous.

A correction must not hurt, so it is smaller than the mean in three ways:

1. Of a lognormal time, the prediction with the least expected relative error |predicted / measured - 1| is
   exp(mean - variance). The correction is the point nearest to it between none and the mean.
2. It counts by mean² / (mean² + variance / n²), n timings: with few of them, a mean within its own
   uncertainty of zero moves little, one far beyond it moves fully.
3. It counts by the probability that corrections pay in this user's hands at all: a small prior, and by how
   surely the user's own timings are closer when corrected by the others (`UserErrors`).

The timings of one model on one device at several sizes (batch, samples) say more about its other sizes. There
the logarithm is a random function of the size, in octaves x above the smallest that was timed:

    log(measured / predicted) = level + slope · x + wander(x) + noise

with normal priors: a wide prior of the level, a slope near 0 (the prediction accounts for the growth of a
step), a random walk, and the noise of repeated timings (`correct_at_size`). Far from all timings the
correction is that of the nearest ones, with a wider interval. The standard deviations are in
`calibrations/few_timings.json`.

References: C. R. Henderson, "Best linear unbiased estimation and prediction under a selection model",
Biometrics 31, 1975. S. Sundararajan and S. S. Keerthi, "Predictive approaches for choosing hyperparameters
in Gaussian processes", Neural Computation 13, 2001 (timings left out in closed form). C. E. Rasmussen and
C. K. I. Williams, "Gaussian processes for machine learning", MIT Press, 2006, chapter 2.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from functools import cache
from typing import Any

import numpy as np

from foretrain.errors import InvalidRequest
from foretrain.estimates import Z90, Quantiles
from foretrain.facts.calibrations import load_calibration
from foretrain.prediction.cost_models import PricedStep
from foretrain.prediction.operators.pricing import KINDS, Floats
from foretrain.workloads.ops import Kind

SIZES_FILE = "few_timings.json"
FREEDOM = 4.0
"""ν of Student's t: how far the scales of users' errors differ."""
_SAME_SIZE = 1e-3
"""Difference of the logarithms of two predictions within which they are of the same configuration."""
_OCTAVE = math.log(2.0)
_TYPICAL_SECONDS, _LONGEST_LOG = 0.1, 4.0
"""`length` is 0 at the first, and -1 and 1 at e to the power of the second below and above it."""
_SHARES_APART, _LOG_SECONDS_APART = 0.2, 3.0
"""Differences of the shares, and of the logarithms of the times, over which `similar` fades."""
_MOST_DEVIATIONS = 3.0
"""Timings farther from what the others say count as this far: a stalled run, or another program."""
_PRIOR_ELSEWHERE, _PRIOR_IN_MODEL = 0.07, 0.15
"""Probability before any evidence that corrections pay, for models not timed and for those timed. With more,
one timing of an unusual model makes sources worse that are predicted well (suite `own_timings`)."""
_WEIGHT_OF_EVIDENCE, _DOUBTFUL_GAIN = 5.0, 2.0
"""Of `UserErrors`. Of a small grid these two, the priors and `_MOST_DEVIATIONS` have the least error on
public sources and add least to any; with a data set left out the choice is the same for 11 of 16."""
_AFTER_SOURCE, _LETTERS = re.compile(r".*[:/]"), re.compile(r"[a-z]+")
_LARGEST_LOG = 50.0  # keeps expm1 finite; an error of e^50 is as bad as any larger one
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
    """Variances of the effects on log(measured / predicted); `own` is of a configuration, shared by no other.

    Those of `host`, `network` and `memory_bound` are of factors on these parts of the step.
    """

    setup: float = 0.0
    length: float = 0.0
    variant: float = 0.0
    device_precision: float = 0.0
    family: float = 0.0
    model: float = 0.0
    similar: float = 0.0
    host: float = 0.0
    network: float = 0.0
    memory_bound: float = 0.0
    own: float = 0.0


TERMS = tuple(Variances.__dataclass_fields__)
SHARED = TERMS[:-1]
"""All but `own`, which no other configuration shares."""
_PARTS = tuple(map(list(StepTraits.__dataclass_fields__).index, ("host", "network", "memory_bound")))
"""Traits that have a factor of their own; the others count in `similar`."""


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

    lengths = np.abs(a.sizes[:, None] - b.sizes[None, :]) / _LOG_SECONDS_APART
    shares = ((a.traits[:, None] - b.traits[None, :]) ** 2).sum(axis=2) / (2 * _SHARES_APART**2)
    listed = [
        np.ones(lengths.shape), np.outer(a.lengths, b.lengths), same(a.variants, b.variants),
        same(a.devices, b.devices) * same(a.precisions, b.precisions), same(a.families, b.families),
        same(a.models, b.models), np.exp(-lengths - shares),
        *(np.outer(a.traits[:, part], b.traits[:, part]) for part in _PARTS),
    ]  # fmt: skip
    return np.stack(listed)


def own_terms(step: StepError) -> Floats:
    """What a step shares with itself, for each of `SHARED`."""
    return shared_terms((step,), (step,))[:, 0, 0]


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
    timings: int = 1

    @property
    def cautious_shift(self) -> float:
        """The correction of log(predicted) before it is tested on other timings; see the module."""
        return float(_cautious(np.array(self.mean), np.array(self.variance), self.timings))


def _cautious(means: Floats, variances: Floats, count: int) -> Floats:
    least_error = np.where(means > 0, np.maximum(0.0, means - variances), means)
    squares = means * means
    return np.asarray(least_error * squares / np.maximum(squares + variances / count**2, _LEAST_OWN), float)


def _scale(quadratic: Floats, count: int) -> Floats:
    """By how much errors are larger than expected, where r' K⁻¹ r of `count` timings is `quadratic`."""
    return np.asarray((FREEDOM + np.maximum(0.0, quadratic)) / (FREEDOM + count), float)


class TimedErrors:
    """Timings of one user, with what they say about any other step.

    With P = K⁻¹, a timing differs from what the others say of it by (P r)_i / P_ii, of variance 1 / P_ii.
    """

    def __init__(self, timings: Sequence[StepError], variances: Variances) -> None:
        self._timings = tuple(timings)
        self._shared = np.array(astuple(variances)[:-1])
        self._own = max(variances.own, _LEAST_OWN)
        covariance = np.tensordot(self._shared, shared_terms(timings, timings), 1)
        covariance += self._own * np.eye(len(self._timings))
        self._inverse = np.linalg.inv(covariance)
        self._measured = np.array([timing.log_ratio for timing in timings])
        off, deviations = self._off_the_others(self._measured)
        most = _MOST_DEVIATIONS * deviations
        self._ratios = self._measured - off + np.clip(off, -most, most)

    def _off_the_others(self, ratios: Floats) -> tuple[Floats, Floats]:
        """By how much each timing differs from what the others say of it, and the deviation of that."""
        variances = 1 / np.diag(self._inverse)
        solved = self._inverse @ ratios
        off = solved * variances
        scales = _scale(ratios @ solved - solved * off, len(self._timings) - 1)  # as the others say
        return off, np.sqrt(variances * scales)

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
        count = len(self._timings)
        scale = float(_scale(self._ratios @ self._inverse @ self._ratios, count))
        return [
            Posterior(mean, scale * max(0.0, prior - known), prior, count)
            for mean, prior, known in zip(means.tolist(), priors, explained.tolist(), strict=True)
        ]

    def posterior(self, step: StepError) -> Posterior:
        """What the timings say about the error of a step."""
        return self.posteriors((step,))[0]

    def errors_left_out(self) -> tuple[Floats, Floats]:
        """Relative errors of the timings, two or more: as predicted, and each as corrected by the others."""
        off, deviations = self._off_the_others(self._ratios)
        shifts = _cautious(self._ratios - off, deviations**2, len(self._timings) - 1)
        before, after = (
            np.abs(np.expm1(np.minimum(each - self._measured, _LARGEST_LOG))) for each in (0.0, shifts)
        )
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

    Trust is the probability that corrections pay, and the share of them that is applied. With g_i the gain of
    a timing when corrected by the others, error before - error after, and m the mean error before,

        ln(trust / (1 - trust)) = ln(prior / (1 - prior)) + 5 Σ g_i / √(Σ g_i² + (2 m)²)

    Gains count by how uniform they are, so that a large one of a single timing is no evidence, and two or
    three can say little. A probability instead of a choice keeps corrections continuous in the times.
    """

    def __init__(self, timings: Sequence[StepError], variances: Variances) -> None:
        self._timings = tuple(timings)
        self._errors = TimedErrors(timings, variances)
        self._models = frozenset(timing.key.model for timing in timings)
        evidence = self._evidence()
        self.trust_elsewhere = _probability(_PRIOR_ELSEWHERE, evidence)
        self.trust_in_model = _probability(_PRIOR_IN_MODEL, evidence)

    def _evidence(self) -> float:
        if len(self._timings) < 2:
            return 0.0
        before, after = self._errors.errors_left_out()
        gains = before - after
        size = math.sqrt(float(gains @ gains) + (_DOUBTFUL_GAIN * float(before.mean())) ** 2)
        return _WEIGHT_OF_EVIDENCE * float(gains.sum()) / size if size > 0 else 0.0

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


def _probability(prior: float, evidence: float) -> float:
    return 1 / (1 + (1 - prior) / prior * math.exp(-evidence))


@dataclass(frozen=True, slots=True)
class TimedSize:
    """Predicted and measured time of a step of one size."""

    size: float
    predicted_seconds: float
    measured_seconds: float

    def __post_init__(self) -> None:
        for name in ("size", "predicted_seconds", "measured_seconds"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InvalidRequest(f"{name} of a timing must be above 0, got {value}")


@dataclass(frozen=True, slots=True)
class SizeSpreads:
    """Standard deviations of the terms of log(measured / predicted); `slope` and `wander` per octave."""

    level: float
    slope: float
    wander: float
    noise: float


@cache
def size_spreads() -> SizeSpreads:
    """The shipped calibration."""
    return load_calibration(SizeSpreads, SIZES_FILE, "spreads")


def correct_at_size(
    timings: Sequence[TimedSize], size: float, predicted_seconds: float, known: SizeSpreads | None = None
) -> Quantiles:
    """The time of a step of any size, from its prediction and the timings."""
    target = TimedSize(size, predicted_seconds, predicted_seconds)
    if not timings:
        raise InvalidRequest("a correction requires at least one timing")
    known = known or size_spreads()
    least = min(timing.size for timing in timings)
    octaves = np.array([math.log2(timing.size / least) for timing in timings])
    place = np.array([math.log2(target.size / least)])
    off = np.array([math.log(timing.measured_seconds / timing.predicted_seconds) for timing in timings])
    seen = _covariance(octaves, octaves, known) + known.noise**2 * np.eye(len(timings))
    across = _covariance(place, octaves, known)
    middle = float((across @ np.linalg.solve(seen, off))[0])
    left = _covariance(place, place, known) - across @ np.linalg.solve(seen, across.T)
    deviation = Z90 * math.sqrt(max(float(left[0, 0]), 0.0) + known.noise**2)
    p50 = predicted_seconds * math.exp(middle)
    return Quantiles(p50 * math.exp(-deviation), p50, p50 * math.exp(deviation))


def _covariance(a: Floats, b: Floats, known: SizeSpreads) -> Floats:
    """Covariance of the corrections at some octaves; the random walk starts at the smallest size."""
    one, other = a[:, None], b[None, :]
    same_side = one * other > 0
    walked = np.where(same_side, np.minimum(np.abs(one), np.abs(other)), 0.0)
    covariance: Floats = known.level**2 + known.slope**2 * one * other + known.wander**2 * walked
    return covariance
