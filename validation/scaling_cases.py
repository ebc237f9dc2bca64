"""What the suites of scaling share: methods, each fitted to a few timings of a job, and their predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from calibration.scaling import NOISE, Job, Population, learn_population

from foretrain.estimates import Quantiles
from foretrain.learning.scaling.configurations import ScalingConfiguration, Timing, columns, reference_batch
from foretrain.learning.scaling.fitting import Prior, fit, leave_out, step_seconds, wide_prior
from foretrain.learning.scaling.forms import FORMS, Form, form
from validation.report import Case, Metrics, metrics

HERE = "foretrain, other models of the cluster known"
ANY, NEVER = "foretrain, cluster not named", "foretrain, cluster never seen"
PEERS: Mapping[str, str] = {
    "ring": "linear compute + ring, p-norm",
    "pollux": "Pollux",
    "optimus": "Optimus",
    "sanghvi": "a0 M/g + a1 g + a2",
}
CHOSEN = "the form best on timings left out"
METHODS = (HERE, ANY, NEVER, CHOSEN, *PEERS.values())


@dataclass(frozen=True, eq=False)
class Question:
    """Timings of a job to fit to, and timings to predict, each with a label."""

    model: str
    cluster: str
    known: tuple[Timing, ...]
    wanted: tuple[Timing, ...]
    labels: tuple[str, ...]


class Priors:
    """Priors of the physical form that never saw the model, and, if asked, nothing of its cluster either."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = tuple(jobs)
        self._learned: dict[tuple[str, str], Population] = {}

    def of(self, method: str, model: str, cluster: str) -> Prior:
        """The prior one of our methods may use for a job."""
        without = cluster if method == NEVER else ""
        if (model, without) not in self._learned:
            jobs = [job for job in self._jobs if model != job.model and without != job.cluster]
            self._learned[model, without] = learn_population(form("physical"), jobs)
        population = self._learned[model, without]
        return population.by_cluster[cluster] if method == HERE else population.prior


def answered(context: Question, priors: Priors) -> list[Case]:
    """The predictions of each method for the timings wanted."""
    predicted: dict[str, Sequence[Quantiles]] = {}
    for method in (HERE, ANY, NEVER):
        prior = priors.of(method, context.model, context.cluster)
        predicted[method] = _predicted(form("physical"), prior, context)
    for name, method in PEERS.items():
        predicted[method] = _predicted(FORMS[name], _wide(name), context)
    predicted[CHOSEN] = predicted[_best(context, priors)]
    return [
        Case(
            f"{context.model} on {timing.configuration}, {label}",
            context.cluster,
            timing.step_seconds,
            {method: quantiles[row].p50 for method, quantiles in predicted.items()},
            predicted[HERE][row],
        )
        for row, (timing, label) in enumerate(zip(context.wanted, context.labels, strict=True))
    ]


def _best(context: Question, priors: Priors) -> str:
    """The method whose form is least off on the timings fitted to, each left out in turn."""
    if len(context.known) < 2:
        return HERE
    ours = leave_out(form("physical"), context.known, priors.of(HERE, context.model, context.cluster))
    errors = {HERE: ours.mean_error}
    for name, method in PEERS.items():
        errors[method] = leave_out(FORMS[name], context.known, _wide(name)).mean_error
    return min(errors, key=lambda method: errors[method])


@cache
def _wide(name: str) -> Prior:
    return wide_prior(FORMS[name], NOISE)


def _predicted(of: Form, prior: Prior, context: Question) -> tuple[Quantiles, ...]:
    places = [item.configuration for item in context.known]
    middle = reference_batch(places)
    seconds = np.log([item.step_seconds for item in context.known])
    fitted = fit(of, columns(places, middle), seconds, prior)
    wanted: list[ScalingConfiguration] = [item.configuration for item in context.wanted]
    return step_seconds(fitted, wanted, middle)


def by_method(cases: Sequence[Case]) -> dict[str, Metrics]:
    """Figures of all methods; the interval is that of ours that knows the cluster."""
    return {method: metrics(cases, method, method == HERE) for method in METHODS}
