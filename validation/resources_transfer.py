"""Transfer of an Inspector to a new setting, against training it from scratch: error by runs and by time.

The new setting is a parameter server with asynchronous updates. An Inspector is trained on all other runs;
then some runs of the new setting are shown to it (second half of the repetitions and the MLP are trained) and
to a new Inspector. Both predict runs of the new setting of models that neither of them has seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretrain.learning.resources.inputs import table_of
from foretrain.learning.resources.learn import constants_of
from foretrain.learning.resources.options import InspectorOptions, InspectorTraining
from foretrain.learning.resources.samples import ResourceSample
from foretrain.learning.resources.training import Member, folds_of, predict_targets, train_member
from foretrain.prediction.step.cpu_workers import WorkerConstants
from foretrain.store.runs import Floats
from validation.report import Table

SETTING = "server, async"
_SIZES = (8, 20, 0)
"""Runs of the new setting that are shown; 0 stands for all."""
_PRETRAINING = InspectorTraining(epochs=150, patience=40, members=1)
_TUNING = InspectorTraining(epochs=150, patience=40, members=1)
_FOLDS = 3
_INPUTS = {
    "graph, setting and timeline": InspectorOptions(),
    "graph and setting, as Driple": InspectorOptions(uses_timeline=False),
}


@dataclass(frozen=True)
class _Trained:
    """Errors of the figures of one fold, and what training took."""

    errors: list[float]
    seconds: float
    epochs: int
    runs: int


def transfer_table(samples: Sequence[ResourceSample], interval_seconds: float) -> Table:
    """Errors and times of both ways by the number of runs, over folds of models."""
    rows = []
    for name, options in _INPUTS.items():
        for (_, way), each in _trained(samples, interval_seconds, options).items():
            errors = [error for trained in each for error in trained.errors]
            rows.append(
                (
                    name,
                    way,
                    f"{np.mean([trained.runs for trained in each]):.0f}",
                    f"{np.mean(errors):.1%}",
                    f"{np.median(errors):.1%}",
                    f"{np.mean([trained.epochs for trained in each]):.0f}",
                    f"{np.mean([trained.seconds for trained in each]):.1f} s",
                )
            )
    return Table(
        "transfer to a parameter server with asynchronous updates, models left out",
        ("input", "Inspector", "runs of the new setting", "mean error", "median", "epochs", "processor time"),
        tuple(rows),
    )


def _trained(
    samples: Sequence[ResourceSample], interval: float, options: InspectorOptions
) -> dict[tuple[int, str], list[_Trained]]:
    """What each way and number of runs gives, fold by fold."""
    results: dict[tuple[int, str], list[_Trained]] = {}
    for fitted, apart in folds_of([each.model for each in samples], _FOLDS):
        others = [samples[row] for row in fitted if samples[row].scene.strategy != SETTING]
        new = [samples[row] for row in fitted if samples[row].scene.strategy == SETTING]
        asked = [samples[row] for row in apart if samples[row].scene.strategy == SETTING]
        if not asked:
            continue
        known = constants_of(others)
        start = _member(others, known, interval, options, _PRETRAINING)
        unchanged = _Trained(_errors(start, asked, known, interval, options), 0.0, 0, 0)
        results.setdefault((0, "not adapted"), []).append(unchanged)
        for size in _SIZES:
            shown = _some(new, size)
            own = constants_of(shown)
            for way, constants, first in (("from scratch", own, None), ("transferred", known, start)):
                member = _member(shown, constants, interval, options, _TUNING, first)
                errors = _errors(member, asked, constants, interval, options)
                trained = _Trained(errors, member.seconds, member.epochs, len(shown))
                results.setdefault((size, way), []).append(trained)
    return results


def _some(samples: Sequence[ResourceSample], count: int) -> list[ResourceSample]:
    if not count:
        return [*samples]
    chosen = np.random.default_rng(0).permutation(len(samples))[:count]
    return [samples[place] for place in np.sort(chosen)]


def _member(
    samples: Sequence[ResourceSample],
    constants: WorkerConstants,
    interval_seconds: float,
    options: InspectorOptions,
    training: InspectorTraining,
    start: Member | None = None,
) -> Member:
    table = table_of([each.scene for each in samples], options, constants, interval_seconds)
    targets, models = np.array([each.targets for each in samples]), [each.model for each in samples]
    return train_member(table, targets, models, options, training, 0, start)


def _errors(
    member: Member,
    asked: Sequence[ResourceSample],
    constants: WorkerConstants,
    interval_seconds: float,
    options: InspectorOptions,
) -> list[float]:
    table = table_of([each.scene for each in asked], options, constants, interval_seconds)
    measured: Floats = np.array([each.targets for each in asked])
    measured[:, 4:6] = np.nan  # memory alternates in too few runs to count
    off = np.abs(predict_targets([member], table) / measured - 1)
    return [float(error) for error in off[np.isfinite(off)]]
