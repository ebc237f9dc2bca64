"""The ultra-scale playbook's 1,643 layouts of Llama 1B and 8B on 8 to 512 H100, trained by nanotron.

Each size is predicted from the model alone, and with the constants of the framework fitted on the other size.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from calibration.datasets.ultrascale import SEQ_LEN, NanotronRun, can_run, read
from calibration.frameworks import Framework, Holding, LayoutParts, fit_framework, step_seconds

from calibration import frameworks
from calibration.datasets import ultrascale
from foretrain.facts.devices import Device
from foretrain.facts.hardware import hardware
from foretrain.prediction.collectives.network import Network, network_of
from foretrain.prediction.cost_models import OperatorCostModel
from foretrain.prediction.strategies.strategy import Layout
from validation.report import Case, Metrics, SuiteReport, Verdicts, metrics
from validation.splitting import intervals
from validation.spread_runs import Bench, Held, Run

HERE, ALONE = "foretrain, fitted on the other size", "foretrain, from the model alone"
SAME, STEADY = "the other size's same layout, by FLOP", "the other size's median FLOP/s"
_START = Framework(1.3, 1.0, 1.0, 1.0, 1.5, 2.0, 4.0, 1e-4, 3e-5, 1e-4, 1.0, 1.5e-3, 1.0, 0.7, overlaps=True)
_WIDTH_BYTES = 2
_NOTES = (
    "Errors are given for tokens/s, as in the target, and for the seconds of a step: a run that stalled to "
    "a fiftieth of its speed is off by 98 % in seconds and by 4,900 % in tokens/s.",
    "Runs were made with two versions of nanotron: those without a pipeline keep what sequence-parallel "
    "layers gather, most of those with one gather it again.",
    "Memory was measured on the first device, so the memory of the first stage is predicted; whether a run "
    "fits depends on the fullest stage.",
    "What constants there are, the versions' difference and the stall on 64 nodes were chosen after looking "
    "at the rows of both sizes; the values of the constants were fitted on the other size alone.",
    "A configuration is predicted to fail where a pipeline stage would be empty, where micro-batches are "
    "fewer than 1F1B needs (both rules of nanotron), or where memory exceeds a limit fitted on the other "
    "size.",
)


@dataclass(frozen=True)
class PredictedRun:
    """A run as the model alone predicts it: its time, and what the first and the fullest stage hold."""

    run: NanotronRun
    parts: LayoutParts | None
    seconds: float
    first: Holding
    fullest: Holding
    fits: bool


def run(data: Path) -> SuiteReport:
    """Both sizes, each by the other."""
    runs = read(data)
    by_size = {size: _predicted([one for one in runs if one.model == size]) for size in ("1B", "8B")}
    cases, memory, right = [], [], {HERE: 0, ALONE: 0, "everything runs": 0}
    for size, predicted in by_size.items():
        (others,) = (other for name, other in by_size.items() if name != size)
        cases += _time_cases(predicted, others)
        memory += _memory_cases(predicted, others)
        for method, count in _verdicts([one for one in runs if one.model == size], predicted, others).items():
            right[method] += count
    cases = _with_intervals(cases)
    return SuiteReport(
        "ultrascale",
        tuple(cases),
        {**_time_metrics(cases, by_size), "memory": _metrics(memory), **_by_size("memory", memory)},
        {"runs or does not": {method: Verdicts(count, len(runs)) for method, count in right.items()}},
        notes=(*_NOTES, *_repeatability(runs)),
    )


def _predicted(runs: Sequence[NanotronRun]) -> list[PredictedRun]:
    """All that nanotron can run, predicted from the model alone."""
    device, _ = _hardware(1)
    bench = Bench(device, OperatorCostModel())
    predicted = []
    for one in sorted(filter(can_run, runs), key=lambda one: (one.pipeline > 1, *_bench_order(one))):
        asked = _asked(one)
        held = bench.memory(asked)
        unit = one.micro_batch * SEQ_LEN * ultrascale.width_of(one) * _WIDTH_BYTES / one.tensor
        ran = one.seconds is not None
        predicted.append(
            PredictedRun(
                one,
                bench.parts(asked) if ran else None,
                bench.spread(asked).seconds if ran else 0.0,
                _holding(held.first, unit),
                _holding(held.fullest, unit),
                held.fits,
            )
        )
    return predicted


def _holding(held: Held, unit: float) -> Holding:
    return Holding(float(held.estimate.allocated_bytes), unit * held.blocks * held.in_flight)


def _bench_order(one: NanotronRun) -> tuple[int, int, int]:
    return one.tensor, one.micro_batch, one.pipeline


def _asked(one: NanotronRun) -> Run:
    layout = Layout(
        "nanotron",
        tensor=one.tensor,
        pipeline=one.pipeline,
        sequence_parallel=one.tensor > 1,
        keeps_gathered=one.pipeline == 1,
        zero_stage=one.zero_stage,
        shard=one.data if one.zero_stage else 1,
        data=1 if one.zero_stage else one.data,
    )
    model, starts = ultrascale.model_of(one), ultrascale.stage_starts(one)
    return Run(model, layout, one.micro_batch, one.micro_batches, _hardware(one.nodes)[1], starts)


@cache
def _hardware(nodes: int) -> tuple[Device, Network]:
    cluster = hardware(ultrascale.HARDWARE + (f":{nodes}" if nodes > 1 else ""))
    return cluster.device, network_of(cluster)


def _time_cases(predicted_runs: Sequence[PredictedRun], others: Sequence[PredictedRun]) -> list[Case]:
    framework = fit_framework(
        [(each.parts, _seconds(each)) for each in others if each.parts is not None], _START
    )
    known = {_layout_key(each.run): _flop_per_second(each.run) for each in others if each.run.seconds}
    steady = statistics.median(known.values())
    cases = []
    for each in predicted_runs:
        if each.parts is None:
            continue
        predicted = {HERE: step_seconds(each.parts, framework), ALONE: each.seconds}
        flop = ultrascale.flop_per_token(each.run) * each.run.tokens / each.run.devices
        predicted[STEADY] = flop / steady
        if _layout_key(each.run) in known:
            predicted[SAME] = flop / known[_layout_key(each.run)]
        cases.append(Case(_name(each.run), each.run.model, _seconds(each), predicted))
    return cases


def _seconds(each: PredictedRun) -> float:
    assert each.run.seconds is not None
    return each.run.seconds


def _layout_key(one: NanotronRun) -> tuple[int, ...]:
    return (
        one.nodes, one.data, one.pipeline, one.tensor, one.zero_stage, one.micro_batch, one.micro_batches
    )  # fmt: skip


def _flop_per_second(one: NanotronRun) -> float:
    assert one.seconds is not None
    return ultrascale.flop_per_token(one) * one.tokens / one.devices / one.seconds


def _name(one: NanotronRun) -> str:
    return (
        f"{one.model} tp={one.tensor} pp={one.pipeline} dp={one.data} zero={one.zero_stage}, "
        f"{one.micro_batches} x {one.micro_batch} sequences on {one.nodes} nodes"
    )


def _with_intervals(cases: Sequence[Case]) -> list[Case]:
    bounds = intervals(
        [case.group for case in cases],
        np.array([case.measured for case in cases]),
        np.array([case.predicted[HERE] for case in cases]),
    )
    return [replace(case, interval=bound) for case, bound in zip(cases, bounds, strict=True)]


def _memory_cases(predicted_runs: Sequence[PredictedRun], others: Sequence[PredictedRun]) -> list[Case]:
    held = _held(others)
    return [
        Case(
            _name(each.run),
            each.run.model,
            each.run.memory_bytes,
            {HERE: held.memory(each.first), ALONE: each.first.bytes},
        )
        for each in predicted_runs
        if each.run.memory_bytes is not None
    ]


def _held(others: Sequence[PredictedRun]) -> frameworks.Held:
    return frameworks.fit_held_activations(
        [(each.first, each.fullest, each.run.memory_bytes) for each in others]
    )


def _verdicts(
    runs: Sequence[NanotronRun], predicted_runs: Sequence[PredictedRun], others: Sequence[PredictedRun]
) -> dict[str, int]:
    held = _held(others)
    impossible = [one.seconds is None for one in runs if not can_run(one)]
    did = [each.run.seconds is not None for each in predicted_runs]
    here = sum(held.fits(each.fullest) == ran for each, ran in zip(predicted_runs, did, strict=True))
    alone = sum(each.fits == ran for each, ran in zip(predicted_runs, did, strict=True))
    return {
        HERE: here + sum(impossible),
        ALONE: alone + sum(impossible),
        "everything runs": sum(one.seconds is not None for one in runs),
    }


def _time_metrics(
    cases: Sequence[Case], by_size: Mapping[str, Sequence[PredictedRun]]
) -> dict[str, dict[str, Metrics]]:
    speeds = [_in_speed(case) for case in cases]
    runs = {_name(each.run): each.run for predicted_runs in by_size.values() for each in predicted_runs}
    by_set = {"tokens/s": _metrics(speeds), "step": _metrics(cases)}
    by_set |= _by_size("step", cases)
    for name, chosen in _SUBSETS.items():
        by_set[f"step, {name}"] = _metrics([case for case in cases if chosen(runs[case.name])])
    return by_set


_SUBSETS: Mapping[str, Callable[[NanotronRun], bool]] = {
    "no pipeline, tensor parallel on a node": lambda one: one.pipeline == 1 and one.tensor <= 8,
    "no pipeline, tensor parallel across nodes": lambda one: one.pipeline == 1 and one.tensor > 8,
    "pipeline, no tensor parallelism": lambda one: one.pipeline > 1 and one.tensor == 1,
    "pipeline, tensor parallel on a node": lambda one: one.pipeline > 1 and 1 < one.tensor <= 8,
    "pipeline, tensor parallel across nodes": lambda one: one.pipeline > 1 and one.tensor > 8,
}


def _in_speed(case: Case) -> Case:
    """Steps a second, which tokens/s are proportional to."""
    bound = case.interval
    return replace(
        case,
        measured=1 / case.measured,
        predicted={name: 1 / value for name, value in case.predicted.items()},
        interval=None
        if bound is None
        else replace(bound, p10=1 / bound.p90, p50=1 / bound.p50, p90=1 / bound.p10),
    )


def _by_size(what: str, cases: Sequence[Case]) -> dict[str, dict[str, Metrics]]:
    sizes = sorted({case.group for case in cases})
    return {f"{what}, {size}": _metrics([case for case in cases if case.group == size]) for size in sizes}


def _metrics(cases: Sequence[Case]) -> dict[str, Metrics]:
    methods = [name for name in (HERE, ALONE, SAME, STEADY) if any(name in case.predicted for case in cases)]
    return {
        name: metrics([case for case in cases if name in case.predicted], name, name == HERE)
        for name in methods
    }


def _repeatability(runs: Sequence[NanotronRun]) -> tuple[str, ...]:
    """How far runs that differ only in ZeRO's stage lie apart, which bounds the accuracy of any model."""
    by_rest: dict[tuple[object, ...], list[float]] = {}
    for one in runs:
        if one.seconds is not None:
            by_rest.setdefault((one.model, *_layout_key(replace(one, zero_stage=0))), []).append(one.seconds)
    ratios = [max(times) / min(times) for times in by_rest.values() if len(times) > 1]
    half, three = sum(ratio > 1.5 for ratio in ratios), sum(ratio > 3 for ratio in ratios)
    return (
        f"{len(ratios)} pairs of runs differ in nothing but ZeRO's stage (0 or 1): {half} of them by more "
        f"than half in time, {three} by more than a factor of 3.",
    )
