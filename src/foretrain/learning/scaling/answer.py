"""Step times of all configurations from a few timings: the request of `foretrain scaling` and its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretrain.answers import Answer
from foretrain.encoding import encode
from foretrain.errors import InvalidRequest
from foretrain.estimates import Quantiles
from foretrain.learning.scaling.configurations import (
    Configuration,
    Placement,
    Timing,
    columns,
    reference_batch,
)
from foretrain.learning.scaling.fitting import Fitted, LeftOut, Prior, fit, leave_out, step_seconds
from foretrain.learning.scaling.forms import FORMS, LEVEL, Form, form
from foretrain.learning.scaling.prior import Prediction, form_prior, prior_from_prediction
from foretrain.learning.scaling.suggestion import Suggestion, suggest
from foretrain.units import format_duration

PHYSICAL, ALL = "physical", "all"
_FEWEST = 3
"""Minimum number of timings of a form without a fitted prior."""
_BATCHES = 3
_USUAL_NODE = 8
_PREDICTED = "a prediction of this job"


@dataclass(frozen=True, eq=False)
class ScalingRequest:
    """Timings of one job, configurations to predict (default: `usual_configurations`), form and cluster.

    `predict_at` is a prediction of the job from its model and hardware, and `prediction_error` the standard
    deviation of its errors, in logarithms; it replaces the shipped prior. `devices_per_node` is the size of a
    full node, if known.
    """

    timings: tuple[Timing, ...]
    at: tuple[Configuration, ...] = ()
    form: str = PHYSICAL
    cluster: str = ""
    predict_at: Prediction | None = None
    prediction_error: float = 0.0
    devices_per_node: int | None = None

    def __post_init__(self) -> None:
        if not self.timings:
            raise InvalidRequest("scaling requires at least one timing")
        if self.predict_at is not None and not self.prediction_error > 0:
            raise InvalidRequest("prediction_error must be above 0 if predict_at is given")

    @property
    def timed(self) -> tuple[Configuration, ...]:
        """The configurations timed."""
        return tuple(item.configuration for item in self.timings)

    @property
    def requested(self) -> tuple[Configuration, ...]:
        """The configurations to predict."""
        return self.at or usual_configurations(self.timed, self.devices_per_node)


@dataclass(frozen=True, slots=True)
class ScalingModel:
    """The fitted form: parameters, and residuals of the timings."""

    form: str
    equation: str
    parameters: Mapping[str, float]
    reference_batch: float
    timings: int
    mean_residual: float
    noise: float
    prior: str


@dataclass(frozen=True, slots=True)
class ScalingPrediction:
    """A configuration's step time."""

    placement: str
    devices: int
    batch: int
    step_seconds: Quantiles
    samples_per_second: float
    timed_seconds: float | None


@dataclass(frozen=True)
class ScalingAnswer(Answer):
    """Predictions of all configurations, what to time next, a comparison of forms, and notes."""

    model: ScalingModel
    predictions: tuple[ScalingPrediction, ...]
    time_next: tuple[Suggestion, ...]
    comparison: tuple[LeftOut, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data."""
        encoded: dict[str, Any] = encode(self)
        return encoded

    def summary(self) -> tuple[tuple[str, str], ...]:
        """The fit, and the step time of each configuration."""
        rows = (
            (f"{row.placement}, batch {row.batch}", format_duration(row.step_seconds.p50))
            for row in self.predictions
        )
        model = self.model
        return (("form", f"{model.form}, {model.mean_residual:.1%} mean residual"), *rows)


def predict_scaling(request: ScalingRequest) -> ScalingAnswer:
    """Fit the requested form and predict all configurations.

    With `all`, forms are compared by cross-validation, and the physical one predicts: on Sia's jobs the form
    with the best cross-validation on six timings had errors of 16 % on AWS and 13 % on RTX, the physical one
    9 % and 6 %.
    """
    selected = form(PHYSICAL if request.form == ALL else request.form)
    _check(selected, request.timings)
    prior, source = _prior(request, selected)
    middle = reference_batch(request.timed)
    seconds = np.log([item.step_seconds for item in request.timings])
    fitted = fit(selected, columns(request.timed, middle), seconds, prior)
    return ScalingAnswer(
        _model(fitted, request.timings, middle, source),
        _predictions(fitted, request.requested, request.timings, middle),
        suggest(fitted, request.requested, request.requested, request.timed, middle),
        _compared(request) if request.form == ALL else (),
        _notes(selected, request),
    )


def usual_configurations(
    timed: Sequence[Configuration], devices_per_node: int | None = None
) -> tuple[Configuration, ...]:
    """One node with 1, 2, 4 ... devices, then full nodes up to twice those timed, at the timed batches.

    A full node has as many devices as the fullest timed one, or eight if only one device was timed.
    """
    most = max(item.placement.fullest for item in timed)
    if devices_per_node is not None or all(item.placement.devices == 1 for item in timed):
        most = max(most, devices_per_node or _USUAL_NODE)
    nodes = 2 * max(item.placement.nodes for item in timed)
    counts = sorted({*(2**power for power in range(most.bit_length()) if 2**power <= most), most})
    steps = sorted({2, *(2**power for power in range(1, nodes.bit_length())), nodes})
    places = [Placement((count,)) for count in counts]
    places += [Placement((most,) * count) for count in steps]
    batches = sorted({item.batch for item in timed})
    if len(batches) > _BATCHES:
        batches = [batches[0], batches[len(batches) // 2], batches[-1]]
    return tuple(Configuration(place, batch) for place in places for batch in batches)


def _prior(request: ScalingRequest, of: Form) -> tuple[Prior, str]:
    """The prior of a form, and its source."""
    if of.name != PHYSICAL:
        return form_prior(of), "none"
    learned = form_prior(of, request.cluster)
    if request.predict_at is None:
        return learned, f"jobs on {request.cluster}" if request.cluster else "jobs on several clusters"
    places = tuple(dict.fromkeys((*request.timed, *request.requested)))
    middle = reference_batch(request.timed)
    prior = prior_from_prediction(of, request.predict_at, places, middle, request.prediction_error, learned)
    return prior, _PREDICTED


def _check(of: Form, timings: Sequence[Timing]) -> None:
    """A form without a fitted prior requires timings of several devices."""
    if of.name == PHYSICAL:
        return
    if len(timings) < _FEWEST:
        raise InvalidRequest(
            f"form {of.name} requires at least {_FEWEST} timings, got {len(timings)}; form {PHYSICAL} "
            "requires one"
        )
    if all(item.configuration.placement.devices == 1 for item in timings):
        raise InvalidRequest(
            f"form {of.name} cannot predict several devices from timings on one; time a placement of at "
            f"least two, or use form {PHYSICAL}, which has a prior from other jobs"
        )


def _compared(request: ScalingRequest) -> tuple[LeftOut, ...]:
    if len(request.timings) < 2:
        return ()
    usable = [of for of in FORMS.values() if _is_usable(of, request.timings)]
    return tuple(leave_out(of, request.timings, _prior(request, of)[0]) for of in usable)


def _is_usable(of: Form, timings: Sequence[Timing]) -> bool:
    try:
        _check(of, timings)
    except InvalidRequest:
        return False
    return True


def _model(fitted: Fitted, timings: Sequence[Timing], middle: float, prior: str) -> ScalingModel:
    predicted = fitted.log_seconds(columns([item.configuration for item in timings], middle))
    timed = np.log([item.step_seconds for item in timings])
    named = dict(fitted.form.named(fitted.values))
    parameters = {f"{LEVEL}_seconds": float(np.exp(named.pop(LEVEL))), **named}
    return ScalingModel(
        fitted.form.name,
        fitted.form.equation,
        {name.replace(" ", "_"): value for name, value in parameters.items()},
        middle,
        len(timings),
        float(np.mean(np.abs(np.exp(predicted - timed) - 1))),
        fitted.noise,
        prior,
    )


def _predictions(
    fitted: Fitted, requested: Sequence[Configuration], timings: Sequence[Timing], middle: float
) -> tuple[ScalingPrediction, ...]:
    timed = {item.configuration: item.step_seconds for item in timings}
    return tuple(
        ScalingPrediction(
            str(item.placement),
            item.placement.devices,
            item.batch,
            quantiles,
            item.placement.devices * item.batch / quantiles.p50,
            timed.get(item),
        )
        for item, quantiles in zip(requested, step_seconds(fitted, requested, middle), strict=True)
    )


def _notes(of: Form, request: ScalingRequest) -> tuple[str, ...]:
    """What the timings do not determine, and therefore depends on the prior."""
    if of.name != PHYSICAL:
        return ()
    timed, requested = request.timed, request.requested
    known = "what other jobs have in common" if request.predict_at is None else _PREDICTED
    notes = []
    if _several_devices(requested) and not _several_devices(timed):
        notes.append(f"No placement of several devices was timed: synchronisation rests on {known} alone.")
    elif _several_nodes(requested) and not _several_nodes(timed):
        notes.append(f"No placement of several nodes was timed: their network rests on {known} alone.")
    if len({item.batch for item in timed}) == 1 and {item.batch for item in requested} != {timed[0].batch}:
        notes.append(f"One batch size was timed: how a step grows with the batch rests on {known} alone.")
    return tuple(notes)


def _several_devices(places: Sequence[Configuration]) -> bool:
    return any(item.placement.devices > 1 for item in places)


def _several_nodes(places: Sequence[Configuration]) -> bool:
    return any(item.placement.nodes > 1 for item in places)
