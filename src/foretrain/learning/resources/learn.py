"""`learn resources`: from runs to a trained Inspector with its accuracy on models that it has not seen.

1. Constants of the machine are fitted to the steps of the runs (`learning.user_calibration`).
2. Each fold of models is predicted by a member, and by constants, that saw only the others.
3. The members of the ensemble are trained on all runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretrain.errors import InvalidRequest
from foretrain.learning.resources.artefact import Inspector, StrategyErrors
from foretrain.learning.resources.inputs import SampleTable, table_of
from foretrain.learning.resources.options import InspectorOptions, InspectorTraining, need_torch_geometric
from foretrain.learning.resources.samples import METRICS, RESOURCES, TARGETS, ResourceSample
from foretrain.learning.resources.training import Member, folds_of, predict_targets, train_member
from foretrain.learning.user_calibration.fitting import fit_constants
from foretrain.learning.user_calibration.samples import RunSample
from foretrain.prediction.step.cpu_workers import WorkerConstants
from foretrain.store.runs import Floats

Progress = Callable[[str], None]
FEWEST_FIGURES = 20
"""Metrics with fewer measured figures do not count in errors, and get no interval of their own."""
_FEWEST_RUNS = 20


@dataclass(frozen=True, eq=False)
class LeftOutModels:
    """Predictions of whole models by what was trained on others: Inspector, timeline, and mean of the others.

    Rows are samples, columns the targets; all NaN where nothing was measured. `timeline` is by constants
    fitted to the same other models.
    """

    measured: Floats
    inspector: Floats
    timeline: Floats
    mean: Floats
    seconds: float

    @property
    def counted(self) -> list[int]:
        """Columns with enough measured figures."""
        return [
            place
            for place in range(len(TARGETS))
            if np.isfinite(self.measured[:, place]).sum() >= FEWEST_FIGURES
        ]

    def error(self, predicted: Floats, resource: int, rows: Any = slice(None)) -> float:
        """Mean absolute percentage error of a resource: the mean of those of its metrics."""
        places = [place for place in self.counted if place // len(METRICS) == resource]
        off = np.abs(predicted[rows][:, places] / self.measured[rows][:, places] - 1)
        means = [float(np.nanmean(column)) for column in off.T if np.isfinite(column).any()]
        return float(np.mean(means)) if means else float("nan")


@dataclass(frozen=True, eq=False)
class Learned:
    """A trained Inspector and how it predicts models that it has not seen."""

    inspector: Inspector
    left_out: LeftOutModels
    samples: int
    models: tuple[str, ...]


def learn(
    samples: Sequence[ResourceSample],
    interval_seconds: float,
    options: InspectorOptions | None = None,
    training: InspectorTraining | None = None,
    start: Inspector | None = None,
    progress: Progress = lambda _: None,
) -> Learned:
    """Train an Inspector; with `start`, transfer that one to the setting of the runs."""
    need_torch_geometric()
    options = start.options if start is not None else options or InspectorOptions()
    training = training or InspectorTraining()
    if len(samples) < _FEWEST_RUNS:
        raise InvalidRequest(
            f"{len(samples)} runs are too few to train an Inspector; at least {_FEWEST_RUNS} are needed"
        )
    left_out = predict_left_out(samples, interval_seconds, options, training, start, progress)
    progress("fitting the constants of the machine")
    constants = start.constants if start is not None else constants_of(samples)
    table = table_of([each.scene for each in samples], options, constants, interval_seconds)
    models, targets = [each.model for each in samples], _targets(samples)
    members = []
    for number in range(training.members):
        progress(f"member {number + 1} of {training.members}")
        members.append(
            train_member(
                table,
                targets,
                models,
                options,
                training,
                training.seed + number,
                _start(start, number),
                progress,
            )
        )
    inspector = Inspector(
        options=options,
        members=tuple(members),
        constants=constants,
        interval_seconds=interval_seconds,
        **_intervals(left_out),
        alternating=_alternating(samples, table),
        by_strategy=strategy_errors(samples, left_out),
        most_workers=max(each.scene.step.workers for each in samples),
        provenance={"runs": len(samples), "models": sorted(set(models)), "seed": training.seed},
    )
    return Learned(inspector, left_out, len(samples), tuple(sorted(set(models))))


def _start(start: Inspector | None, number: int) -> Member | None:
    return None if start is None else start.members[number % len(start.members)]


def predict_left_out(
    samples: Sequence[ResourceSample],
    interval_seconds: float,
    options: InspectorOptions,
    training: InspectorTraining,
    start: Inspector | None = None,
    progress: Progress = lambda _: None,
    constants: Sequence[WorkerConstants] | None = None,
) -> LeftOutModels:
    """Each fold of models predicted by what was trained on the others.

    `constants` are those of each fold, where they are known already.
    """
    models, targets = [each.model for each in samples], _targets(samples)
    inspector, timeline, mean = (np.full_like(targets, np.nan) for _ in range(3))
    seconds = 0.0
    folds = [*folds_of(models, training.folds)]
    if constants is None:
        constants = (
            [start.constants] * len(folds) if start is not None else fold_constants(samples, training.folds)
        )
    for number, ((fitted, apart), known) in enumerate(zip(folds, constants, strict=True), 1):
        progress(f"models left out, fold {number} of {len(folds)}")
        table = table_of([each.scene for each in samples], options, known, interval_seconds)
        member = train_member(
            table.rows(fitted),
            targets[fitted],
            [models[row] for row in fitted],
            options,
            training,
            training.seed,
            _start(start, number),
            progress,
        )
        seconds += member.seconds
        inspector[apart] = predict_targets([member], table.rows(apart))
        timeline[apart] = table.figures[apart]
        mean[apart] = np.exp(_nan_means(np.log(targets[fitted])))
    return LeftOutModels(targets, inspector, timeline, mean, seconds)


def _nan_means(values: Floats) -> Floats:
    known = np.isfinite(values)
    means: Floats = np.where(known, values, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return means


def fold_constants(samples: Sequence[ResourceSample], folds: int) -> list[WorkerConstants]:
    """Constants of the machine for each fold of models, fitted to runs of the others."""
    models = [each.model for each in samples]
    return [constants_of([samples[row] for row in fitted]) for fitted, _ in folds_of(models, folds)]


def constants_of(samples: Sequence[ResourceSample]) -> WorkerConstants:
    """Constants of the machine, fitted to the steps of runs."""
    return fit_constants(
        [
            RunSample(each.id, each.model, "", each.id, each.measured_seconds, each.scene.step)
            for each in samples
        ]
    )


def _targets(samples: Sequence[ResourceSample]) -> Floats:
    return np.array([each.targets for each in samples])


def _intervals(left_out: LeftOutModels) -> dict[str, Floats]:
    """Percentiles of measured over predicted; a metric with few figures gets those of all."""
    ratios = left_out.measured / left_out.inspector
    everything = ratios[np.isfinite(ratios)]
    rows = []
    for place in range(len(TARGETS)):
        column = ratios[:, place][np.isfinite(ratios[:, place])]
        rows.append(np.quantile(column if len(column) >= FEWEST_FIGURES else everything, (0.1, 0.9)))
    low, high = np.array(rows).T
    return {"low": np.minimum(low, 1.0), "high": np.maximum(high, 1.0)}


def _alternating(samples: Sequence[ResourceSample], table: SampleTable) -> Floats:
    """How often a resource alternates, by whether the timeline has it so: rows are no and yes."""
    measured = np.isfinite(_targets(samples)[:, 1 :: len(METRICS)])
    exists = np.isfinite(_targets(samples)[:, 0 :: len(METRICS)])
    shares = np.full((2, len(RESOURCES)), 0.5)
    for says in (0, 1):
        for place in range(len(RESOURCES)):
            rows = (table.alternates[:, place] == says) & exists[:, place]
            if rows.any():
                shares[says, place] = float(measured[rows, place].mean())
    return shares


def strategy_errors(samples: Sequence[ResourceSample], left_out: LeftOutModels) -> dict[str, StrategyErrors]:
    """Errors of both methods on the runs of each strategy, over all resources."""
    strategies = np.array([each.scene.strategy for each in samples])
    errors = {}
    for strategy in sorted(set(strategies.tolist())):
        rows = np.flatnonzero(strategies == strategy)
        means = [
            float(np.nanmean([left_out.error(each, place, rows) for place in range(len(RESOURCES))]))
            for each in (left_out.inspector, left_out.timeline)
        ]
        errors[strategy] = StrategyErrors(len(rows), *(round(each, 4) for each in means))
    return errors
