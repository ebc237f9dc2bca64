"""Forms compared on the timings themselves: how far off each is on a timing it was not fitted to."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretrain.learning.scaling.columns import columns, reference_batch
from foretrain.learning.scaling.fitting import Prior, fit
from foretrain.learning.scaling.forms._base import Form
from foretrain.learning.scaling.timings import Timing

_FOLDS = 12


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A form's errors on timings left out, as shares of what was timed."""

    form: str
    equation: str
    parameters: int
    mean_error: float
    largest_error: float


def leave_out(form: Form, timings: Sequence[Timing], prior: Prior) -> LeftOut:
    """Fit to all timings but one (or a twelfth of many) and tell that one, in turn."""
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
        told = fitted.log_seconds(at.only(left))
        errors += np.abs(np.exp(told - seconds[left]) - 1).tolist()
    return LeftOut(form.name, form.equation, len(form.parameters), statistics.fmean(errors), max(errors))
