"""Lambda's PyTorch benchmark: ten training tasks on one GPU of 26 types, FP32 (TF32) and mixed precision.

Habitat's question: a task timed on other GPUs, how long does it take on this one? Everything is fitted on the
runs of the other GPUs. Runs are in the task's own unit; errors are relative, so they can be put together.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np
from calibration.datasets.lambda_labs import LambdaRun, Reading, read
from calibration.steps.task_profile import TaskRun, computed_in, fit_profile

from calibration.datasets import lambda_labs
from foretrain.facts.devices import device
from foretrain.prediction.operators.pricing import Floats, operator_models, peak_flop_per_second, price
from foretrain.workloads.rules import operators
from validation.report import Case, Metrics, SuiteReport, metrics
from validation.splitting import by_group, intervals, worst

HERE = "foretrain"
ZERO_SHOT, SCALED = "foretrain's price, task never timed", "foretrain's price, scaled"
NEAREST, SPEC = "nearest GPU by FLOP/s ratio", "roofline mix of the sheets"
_NOTES = (
    "Throughputs come in units of the task, so the zero-shot row covers only tasks with a sample of a "
    "known graph as unit: ResNet-50, BERT on SQuAD and NCF. It is device time alone: no host, no input.",
    "Software matters: the same GPU gains up to 20 % from PyTorch 1.7 to 1.13 containers; a factor for each "
    "generation of containers is fitted on the other GPUs.",
)


def run(data: Path) -> SuiteReport:
    """Fit on the other GPUs, predict this one."""
    reading = read(data)
    runs = _with_prices(reading.runs)
    by_set: dict[str, dict[str, Metrics]] = {}
    cases = _cases(runs, [item.run.device_id for item in runs])
    by_set["leave GPU out"] = _metrics(cases)
    for precision in ("fp32", "fp16"):
        by_set[f"leave GPU out, {precision}"] = _metrics(
            [case for case in cases if f" {precision} " in case.name]
        )
    for task in sorted({item.run.task for item in runs}):
        by_set[f"leave GPU out, {task}"] = _metrics(
            [case for case in cases if case.name.startswith(f"{task} ")]
        )
    for gpu, group in by_group(cases).items():
        by_set[f"leave GPU out, {gpu}"] = _metrics(group)
    families = _cases(runs, [device(item.run.device_id).family for item in runs])
    by_set["leave family of GPUs out"] = _metrics(families)
    published = [case for case, item in zip(cases, runs, strict=True) if item.run.batch_known]
    by_set["leave GPU out, batch published"] = _metrics(published)
    return SuiteReport("lambda", tuple(cases), by_set, notes=(*_NOTES, *_notes(reading, cases)))


def _with_prices(runs: Sequence[LambdaRun]) -> list[TaskRun]:
    return [TaskRun(item, _price(item) if item.task in lambda_labs.TASKS else None) for item in runs]


def _price(item: LambdaRun) -> float:
    target = device(item.device_id)
    graph = lambda_labs.graph(item, target)
    return float(price(operators(graph), target, operator_models(target)).seconds.sum()) / graph.samples


def _cases(runs: Sequence[TaskRun], groups: Sequence[str]) -> list[Case]:
    labels = np.array(groups)
    predicted = {name: np.full(len(runs), np.nan) for name in (HERE, ZERO_SHOT, SCALED, NEAREST, SPEC)}
    for task, precision in sorted({(item.run.task, item.run.precision) for item in runs}):
        same_task = np.array([(item.run.task, item.run.precision) == (task, precision) for item in runs])
        for group in sorted(set(labels[same_task].tolist())):
            here = same_task & (labels == group)
            known = [runs[index] for index in np.flatnonzero(same_task & ~here).tolist()]
            wanted = [runs[index] for index in np.flatnonzero(here).tolist()]
            for name, values in _by_method(known, wanted).items():
                predicted[name][here] = values
    measured = np.array([item.run.seconds for item in runs])
    bounds = intervals(groups, measured, predicted[HERE], [item.run.task for item in runs])
    return [
        Case(
            f"{item.run.task} {item.run.precision} batch {item.run.batch:.0f} on {item.run.device_id}, "
            f"PyTorch {item.run.software}",
            groups[index],
            item.run.seconds,
            {name: float(values[index]) for name, values in predicted.items() if values[index] > 0},
            bounds[index],
        )
        for index, item in enumerate(runs)
    ]


def _by_method(known: Sequence[TaskRun], wanted: Sequence[TaskRun]) -> dict[str, Floats]:
    predicted = {
        HERE: fit_profile(known).seconds(wanted),
        NEAREST: np.array([_nearest(known, item) for item in wanted]),
        SPEC: _spec_mix(known, wanted),
    }
    if known[0].price is not None:
        prices = np.array([item.price for item in wanted], float)
        scale = median(item.run.seconds / item.price for item in known if item.price)
        predicted |= {ZERO_SHOT: prices, SCALED: prices * scale}
    return predicted


def _peak(item: TaskRun) -> float:
    target = device(item.run.device_id)
    return peak_flop_per_second(target, computed_in(target, item.run.precision), matrix=True)


def _nearest(known: Sequence[TaskRun], wanted: TaskRun) -> float:
    """From the GPU nearest in peak, by the ratio of the peaks."""
    peak = _peak(wanted)
    other = min(known, key=lambda item: abs(np.log(_peak(item) / peak)))
    return other.run.seconds * _peak(other) / peak


def _spec_mix(known: Sequence[TaskRun], wanted: Sequence[TaskRun]) -> Floats:
    """Two shares of the sheets' peak and bandwidth, by least squares of relative errors, at least 0."""

    def rows(runs: Sequence[TaskRun]) -> Floats:
        bandwidths = [device(item.run.device_id).memory_bytes_per_second for item in runs]
        return np.array([[1 / _peak(item), 1 / width] for item, width in zip(runs, bandwidths, strict=True)])

    weighted = rows(known) / np.array([item.run.seconds for item in known])[:, None]
    ones = np.ones(len(known))
    both = np.linalg.lstsq(weighted, ones, rcond=None)[0]
    if (both < 0).any():
        alone = [float(column @ ones / (column @ column)) for column in weighted.T]
        off = [float(np.abs(weighted[:, index] * alone[index] - 1).sum()) for index in range(2)]
        both = np.array([alone[0], 0.0]) if off[0] <= off[1] else np.array([0.0, alone[1]])
    seconds: Floats = rows(wanted) @ both
    return seconds


def _metrics(cases: Sequence[Case]) -> dict[str, Metrics]:
    methods = [
        name
        for name in (HERE, SCALED, ZERO_SHOT, SPEC, NEAREST)
        if any(name in case.predicted for case in cases)
    ]
    return {
        name: metrics([case for case in cases if name in case.predicted], name, name == HERE)
        for name in methods
    }


def _notes(reading: Reading, cases: Sequence[Case]) -> tuple[str, ...]:
    listed = ", ".join(f"{count} {reason}" for reason, count in sorted(reading.left_out.items()))
    guessed = sum(not item.batch_known for item in reading.runs)
    return (
        f"Rows left out: {listed}. No run of Mask R-CNN has a throughput.",
        f"{guessed} of {len(reading.runs)} runs do not state their batch: it is scaled from the GPU with the "
        "nearest memory size.",
        f"Worst: {worst(cases, HERE, _why)}.",
    )


def _why(case: Case) -> str:
    if case.name.startswith("waveglow fp16") and "rtxa4000" in case.name:
        return "measured eight times slower than in FP32 on the same GPU: a broken run"
    if case.name.startswith(("waveglow", "tacotron2")):
        return "many short kernels and the host's speed, which is not in the data sheet"
    if case.name.startswith("ncf"):
        return "few GPUs timed, and containers of 2.x on one GPU alone"
    return "a batch at the limit of memory, or TF32 not in use"
