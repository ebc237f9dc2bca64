"""DAWNBench's whole runs: time and cost, from model, hardware, epochs and how the entry says it trained.

No target is set: frameworks of 2017 to 2020 are predicted by a model of today's. The epochs are those of the
log, so that the error is that of the time alone; the cost is the time at the entry's own price, so that its
relative error is the same. How much slower software was then is one factor, learned from other submitters'
entries.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from foretrain.estimates import Quantiles
from foretrain.prediction.cost_models import OperatorCostModel
from foretrain.prediction.options import InputOptions, Parallelism
from foretrain.prediction.scenario import Evaluation, StepConfiguration, evaluate, step_context
from foretrain.prediction.strategies.strategy import layout_of
from foretrain.units import HOUR
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.workload import workload_of
from validation.dawnbench_entries import (
    SAMPLES,
    Entry,
    Log,
    described,
    known_entries,
    read_logs,
    reason_left_out,
    resnet164_entries,
)
from validation.report import Case, Metrics, SuiteReport, metrics
from validation.splitting import intervals, leave_out

HERE, AGED = "foretrain", "foretrain, slowed down as other submitters' entries are"
PEAK, RULE = "devices at their peak", "devices at 40 % of their peak"
METHODS = (HERE, AGED, PEAK, RULE)
_RULE_SHARE = 0.4
_LABELS: Mapping[str, Callable[[Entry], str]] = {
    "model": lambda entry: entry.model_name,
    "hardware": lambda entry: entry.hardware.device.id,
    "precision": lambda entry: entry.precision,
}
_NOTES = (
    "Image sizes and batches by epoch are those of the entries; `dawnbench_runs.toml` lists them with "
    "every assumption. Reading and decoding images, evaluations and the cost of changing the image size "
    "are not predicted.",
    "Nearly all entries took longer than predicted, DAWN's own of 2017 on K80 twice as long: foretrain was "
    "fitted to kernels of cuDNN 8 and of PyTorch 1.12 and later, while the entries ran cuDNN 5 to 7.",
    "Three logs of ResNet-152 have epochs and hours in each other's column: they are put right.",
)


def run(data: Path) -> SuiteReport:
    """Predict every entry whose model and hardware are known."""
    logs, listed = read_logs(data), described(data)
    entries = [*known_entries(), *resnet164_entries(listed)]
    cases = _with_age([_case(entry, logs[entry.task, entry.name]) for entry in entries])
    both = list(zip(entries, cases, strict=True))
    costs = [
        _in_usd(case, price)
        for entry, case in both
        if (price := logs[entry.task, entry.name].usd_per_hour) is not None
    ]
    by_set = {"time": _table(cases), "cost": _table(costs)}
    for what, label in _LABELS.items():
        for value in sorted({label(entry) for entry in entries}):
            by_set[f"time, {what} {value}"] = _table([case for entry, case in both if label(entry) == value])
    by_set["time, intervals by other submitters' errors"] = _by_others(cases)
    predicted = {(entry.task, entry.name) for entry in entries}
    notes = (*_NOTES, *_assumptions(entries), _left_out(listed, predicted))
    return SuiteReport("dawnbench_runs", tuple(cases), by_set, notes=notes)


def _case(entry: Entry, log: Log) -> Case:
    seconds, busy = Quantiles(0, 0, 0), 0.0
    for phase in entry.over(log.epochs):
        evaluation = _outcome(entry, phase.image_size, phase.batch)
        steps = phase.epochs * SAMPLES[entry.task] / phase.batch
        step = evaluation.total.quantiles.scale(steps)
        seconds = Quantiles(seconds.p10 + step.p10, seconds.p50 + step.p50, seconds.p90 + step.p90)
        busy += step.p50 * evaluation.throughput.mfu
    name = (
        f"{entry.task} {entry.name}: {entry.model_name} in {entry.precision}, {log.epochs:.0f} epochs on "
        f"{entry.hardware.name}"
    )
    by_method = {HERE: seconds.p50 / HOUR, PEAK: busy / HOUR, RULE: busy / HOUR / _RULE_SHARE}
    return Case(name, entry.name.split("_")[0], log.hours, by_method, seconds.scale(1 / HOUR))


@cache
def _outcome(entry: Entry, image_size: int, batch: int) -> Evaluation:
    """One step of a phase; all of its steps err together."""
    machines = entry.hardware
    request = WorkloadRequest(
        entry.model,
        image_size=image_size,
        precision=entry.precision,
        optimizer="momentum",
        master_weights=entry.master_weights,
        compile=entry.compile,
    )
    context = step_context(
        workload_of(request),
        machines,
        Parallelism(network=entry.network),
        OperatorCostModel(),
        InputOptions(),
    )
    layout = layout_of("ddp", machines.devices, machines.devices_per_node)
    return evaluate(context, StepConfiguration(layout, batch // machines.devices, entry.micro_batches))


def _with_age(cases: Sequence[Case]) -> list[Case]:
    """Each case also slowed down as the other submitters' entries are at the median."""
    ratios = np.array([case.measured / case.predicted[HERE] for case in cases])
    aged = leave_out(
        [case.group for case in cases],
        len(cases),
        lambda others, _: np.full(len(cases), statistics.median(ratios[others].tolist())),
    )
    return [
        replace(
            case,
            predicted={HERE: case.predicted[HERE], AGED: case.predicted[HERE] * factor, **case.predicted},
        )
        for case, factor in zip(cases, aged.tolist(), strict=True)
    ]


def _by_others(cases: Sequence[Case]) -> dict[str, Metrics]:
    """The slowed-down times, with intervals from the errors of other submitters' entries."""
    bounds = intervals(
        [case.group for case in cases],
        np.array([case.measured for case in cases]),
        np.array([case.predicted[AGED] for case in cases]),
    )
    bounded = [replace(case, interval=bound) for case, bound in zip(cases, bounds, strict=True)]
    return {AGED: metrics(bounded, AGED, with_interval=True)}


def _in_usd(case: Case, usd_per_hour: float) -> Case:
    return replace(
        case,
        measured=case.measured * usd_per_hour,
        predicted={name: hours * usd_per_hour for name, hours in case.predicted.items()},
        interval=None if case.interval is None else case.interval.scale(usd_per_hour),
    )


def _table(cases: Sequence[Case]) -> dict[str, Metrics]:
    return {name: metrics(cases, name, with_interval=name == HERE) for name in METHODS}


def _assumptions(entries: Sequence[Entry]) -> Iterator[str]:
    by_text: dict[str, list[str]] = {}
    for entry in entries:
        if entry.assumed:
            by_text.setdefault(entry.assumed, []).append(entry.name)
    for text, names in by_text.items():
        yield f"Assumed of {', '.join(names)}: {text}."


def _left_out(rows: Sequence[Mapping[str, str]], predicted: set[tuple[str, str]]) -> str:
    by_reason: dict[str, list[str]] = {}
    for row in rows:
        if (row["task"], row["entry"]) not in predicted:
            by_reason.setdefault(reason_left_out(row), []).append(f"{row['entry']} ({row['model']})")
    listed = (f"{reason}: {len(names)}, {', '.join(names)}" for reason, names in sorted(by_reason.items()))
    return f"Left out: {'; '.join(listed)}."
