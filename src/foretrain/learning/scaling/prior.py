"""What is known of a form's parameters before a job was timed: a normal distribution, and timings' noise.

The shipped prior of the physical form is the population of jobs it was fitted to (`calibration.scaling`). A
prediction of the job, from its model and hardware, makes a sharper one: `prior_from_prediction`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from foretrain.errors import InvalidData, UnknownName
from foretrain.facts.sheets import data_root
from foretrain.learning.scaling.configurations import Configuration, Placement, Timing, columns
from foretrain.learning.scaling.fitting import Fitted, Prior, fit
from foretrain.learning.scaling.forms import LEVEL, LEVEL_DEVIATION, Form
from foretrain.prediction.operators.listing import Floats

FILE = "scaling.json"
FORMAT = 1
Prediction = Callable[[Placement, int], float]
"""Seconds of a step, predicted for a placement and a batch per device."""


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
    configurations: Sequence[Configuration],
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
    file = data_root() / "calibrations" / FILE
    raw: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    if raw.get("format") != FORMAT:
        raise InvalidData(str(file), f"is of format {raw.get('format')}, not {FORMAT}: write it anew")
    return raw


def known_clusters() -> tuple[str, ...]:
    """Clusters whose jobs the shipped calibration has learned from."""
    return tuple(name for learned in _calibration()["forms"].values() for name in learned["clusters"])
