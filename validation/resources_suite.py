"""Bursts and idle gaps of real trainings, predicted by the Inspector and by the timeline.

The campaign of `validation/data/resources`: 268 runs of 15 models on CPU workers that foretrain can describe.
Whole models are left out, a fifth of them at a time: constants, Inspector and mean are fitted to the others.
Utilisation is that of the worker's cores; memory is what its process keeps resident, and hardly alternates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from foretrain.estimates import Quantiles
from foretrain.learning.resources.learn import LeftOutModels, fold_constants, predict_left_out
from foretrain.learning.resources.options import InspectorOptions, InspectorTraining
from foretrain.learning.resources.samples import (
    METRICS,
    RESOURCES,
    TARGETS,
    ResourceSample,
    resource_samples,
    sample_interval_seconds,
    steady_window,
    timeline_figures,
)
from foretrain.learning.resources.training import folds_of
from foretrain.learning.user_calibration.samples import UnusedRun
from foretrain.prediction.resources.bursts import Pattern, bursts_of, within
from foretrain.prediction.resources.worker_cycle import worker_cycle
from foretrain.store.exchange.parquet_files import read_parquet
from foretrain.store.runs import NODE, Floats, Run
from validation.campaign_suite import FOLDER, machine_of_the_campaign
from validation.report import Case, Metrics, SuiteReport, Table, metrics
from validation.resources_transfer import transfer_table

INSPECTOR, TIMELINE = "Inspector", "timeline, timed operators only"
FITTED, MEAN = "timeline, constants fitted to other models", "mean of the other models"
NAMES = ("utilisation", "memory", "transmit", "receive")
TRAINING = InspectorTraining(epochs=200, patience=40, members=1)
_DESIGN = InspectorTraining(epochs=80, patience=30, members=1, folds=3)
"""The design study compares many Inspectors: each is trained for less long, and in fewer folds."""


def run(data: Path) -> SuiteReport:
    """Predict models left out, compare designs, and transfer to a new setting."""
    del data  # measured by a campaign of this repository
    runs = read_parquet(FOLDER / "runs.parquet")
    with machine_of_the_campaign():
        samples, unused = resource_samples(runs)
        return report(runs, samples, unused)


def report(
    runs: Sequence[Run], samples: Sequence[ResourceSample], unused: Sequence[UnusedRun]
) -> SuiteReport:
    """The report on samples that were read before."""
    interval = sample_interval_seconds(runs)
    constants = fold_constants(samples, TRAINING.folds)
    left_out = predict_left_out(samples, interval, InspectorOptions(), TRAINING, constants=constants)
    plain = np.array([timeline_figures(worker_cycle(each.scene.pace), interval)[0] for each in samples])
    cases = [*_cases(samples, left_out, plain)]
    figures = {name: _by_method([each for each in cases if f": {name} " in each.name]) for name in NAMES}
    for strategy in sorted({each.scene.strategy for each in samples}):
        named = f", {strategy}, "
        figures[f"strategy {strategy}"] = _by_method([each for each in cases if _of(each, named)])
    figures["all figures"] = _by_method(cases)
    tables = (
        _design_study(samples, interval, left_out),
        transfer_table(samples, interval),
        _noise(runs, samples),
    )
    return SuiteReport("resources", tuple(cases), figures, {}, _notes(samples, unused, left_out), tables)


def _of(case: Case, strategy: str) -> bool:
    """Whether a case is of a strategy: `server, async` is not `server`."""
    return strategy in case.name and (", async, " in strategy or ", async, " not in case.name)


def _by_method(cases: Sequence[Case]) -> dict[str, Metrics]:
    return {
        method: metrics(cases, method, with_interval=method == INSPECTOR)
        for method in (INSPECTOR, FITTED, TIMELINE, MEAN)
    }


def _cases(samples: Sequence[ResourceSample], left_out: LeftOutModels, plain: Floats) -> Iterator[Case]:
    models = [each.model for each in samples]
    for _, apart in folds_of(models, TRAINING.folds):
        others = np.setdiff1d(np.arange(len(samples)), apart)
        for place in left_out.counted:
            ratios = left_out.measured[others, place] / left_out.inspector[others, place]
            low, high = np.quantile(ratios[np.isfinite(ratios)], (0.1, 0.9))
            for row in apart:
                measured = float(left_out.measured[row, place])
                if np.isfinite(measured):
                    yield _case(samples[row], place, measured, left_out, plain, int(row), (low, high))


def _case(
    sample: ResourceSample,
    place: int,
    measured: float,
    left_out: LeftOutModels,
    plain: Floats,
    row: int,
    width: tuple[float, float],
) -> Case:
    metric = METRICS[place % len(METRICS)].replace("_", " ")
    step = sample.scene.step
    rate = (
        ""
        if step.network_bytes_per_second is None
        else f", {8e-6 * step.network_bytes_per_second:.0f} Mbit/s"
    )
    model = f"{sample.model} batch {sample.scene.graph.batch}"
    where = f"{model}, {sample.scene.strategy}, {step.workers} workers{rate}"
    corrected = float(left_out.inspector[row, place])
    return Case(
        f"{where}: {NAMES[place // len(METRICS)]} {metric}",
        sample.model,
        measured,
        {
            INSPECTOR: corrected,
            FITTED: float(left_out.timeline[row, place]),
            TIMELINE: float(plain[row, place]),
            MEAN: float(left_out.mean[row, place]),
        },
        Quantiles(corrected * min(1.0, width[0]), corrected, corrected * max(1.0, width[1])),
    )


_DESIGNS = (
    ("grouping", "proportional (default)", InspectorOptions()),
    ("grouping", "uniform, 28 nodes", InspectorOptions(grouping="uniform")),
    ("grouping", "none", InspectorOptions(grouping="none")),
    ("network", "GCN (default)", InspectorOptions()),
    ("network", "GAT", InspectorOptions(network="gat")),
    ("network", "GIN", InspectorOptions(network="gin")),
    ("network", "MPNN", InspectorOptions(network="mpnn")),
    ("K", "m/2 (default)", InspectorOptions()),
    ("K", "m/4", InspectorOptions(repetitions_per_node=0.25)),
    ("K", "m", InspectorOptions(repetitions_per_node=1.0)),
    ("readout", "set2set (default)", InspectorOptions()),
    ("readout", "mean", InspectorOptions(readout="mean")),
    ("readout", "sum", InspectorOptions(readout="sum")),
    ("readout", "max", InspectorOptions(readout="max")),
    ("input", "graph, setting and timeline (default)", InspectorOptions()),
    ("input", "graph and setting", InspectorOptions(uses_timeline=False)),
)


def _design_study(samples: Sequence[ResourceSample], interval: float, left_out: LeftOutModels) -> Table:
    constants = fold_constants(samples, _DESIGN.folds)
    known: dict[InspectorOptions, LeftOutModels] = {}
    rows = []
    for axis, name, options in _DESIGNS:
        if options not in known:
            known[options] = predict_left_out(samples, interval, options, _DESIGN, constants=constants)
        study = known[options]
        rows.append(
            (
                axis,
                name,
                f"{nrmse(study, study.inspector):.3f}",
                *_errors(study, study.inspector),
                f"{study.seconds:.0f} s",
            )
        )
    for name, predicted in ((FITTED, left_out.timeline), (MEAN, left_out.mean)):
        rows.append(
            ("baseline", name, f"{nrmse(left_out, predicted):.3f}", *_errors(left_out, predicted), "")
        )
    return Table(
        "design study: NRMSE (root mean square error over the range, mean of the targets), mean errors, and "
        "processor time of training",
        ("axis", "design", "NRMSE", *NAMES, "training"),
        tuple(rows),
    )


def _errors(left_out: LeftOutModels, predicted: Floats) -> list[str]:
    return [f"{left_out.error(predicted, place):.1%}" for place in range(len(RESOURCES))]


def nrmse(left_out: LeftOutModels, predicted: Floats) -> float:
    """Root mean square error over the range of what was measured, averaged over the targets."""
    values = []
    for place in left_out.counted:
        rows = np.isfinite(left_out.measured[:, place])
        measured = left_out.measured[rows, place]
        off = predicted[rows, place] - measured
        values.append(float(np.sqrt(np.mean(off**2)) / (measured.max() - measured.min())))
    return float(np.mean(values))


def _noise(runs: Sequence[Run], samples: Sequence[ResourceSample]) -> Table:
    """How far equal workers of one run differ: what no prediction of a worker can know."""
    used = {each.id for each in samples}
    off: dict[str, list[float]] = {target: [] for target in TARGETS}
    for each in runs:
        window = steady_window(each)
        if each.id not in used or window is None:
            continue
        for resource in RESOURCES:
            of_workers = [
                bursts_of(within(series, window))
                for series in each.series
                if series.resource is resource and series.worker in (0, 1) and series.worker != NODE
            ]
            pair = [bursts for bursts in of_workers if bursts is not None]
            if len(pair) != 2 or each.environment.nodes < 2:
                continue
            for metric in METRICS:
                values = [getattr(bursts, metric) for bursts in pair]
                alternate = all(bursts.pattern is Pattern.ALTERNATING for bursts in pair)
                if min(values) > 0 and (alternate or metric == METRICS[0]):
                    off[f"{resource.value} {metric}"].append(abs(values[0] / values[1] - 1))
    rows = tuple(
        (target, str(len(each)), f"{np.mean(each):.1%}", f"{np.median(each):.1%}")
        for target, each in off.items()
        if len(each) >= 20
    )
    return Table(
        "difference between two equal workers of one run", ("figure", "runs", "mean", "median"), rows
    )


def _notes(
    samples: Sequence[ResourceSample], unused: Sequence[UnusedRun], left_out: LeftOutModels
) -> tuple[str, ...]:
    counts = np.isfinite(left_out.measured).sum(axis=0)
    durations = int(counts[1 + len(METRICS)])
    return (
        f"{len(samples)} of {len(samples) + len(unused)} runs; the others are DataParallel between nodes, "
        "which foretrain does not predict.",
        "A figure is the mean of the workers of a run. Durations are compared where a resource alternates; "
        f"memory does so in {durations} runs, too few to count.",
        "A run lasts about two seconds (four steady steps in most) and is sampled every 25 ms, on a machine "
        "shared with other work.",
        "Targets are the errors that Driple's presentation reports for its GPUs (11, 9, 17 and 15 %).",
        f"Processor time of training the five Inspectors: {left_out.seconds:.0f} s.",
    )
