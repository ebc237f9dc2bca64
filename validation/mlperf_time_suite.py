"""MLPerf's time to train, rounds 2.1 and 4.0, ResNet-50 and BERT: from model, hardware and reference epochs.

Nothing is fitted on these runs. A case is one submission: MLPerf's score of its system, as measured. Beside
it stand what its logged throughput would say (the error of the reference epochs alone), the epochs as run
(the error of the step alone), devices at their peak and at 40 % of it, and other assumptions about software.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from foretrain.convergence.batch_size import BatchSizeLaw
from validation.mlperf_cases import BENCHMARKS, Read, Submission, read, reference_laws
from validation.mlperf_steps import (
    HALF,
    PLAIN,
    SUBMITTED,
    evaluations,
    samples_to_target,
    seconds_to_train,
    tell,
    time_to_train,
)
from validation.report import Case, Metrics, SuiteReport, metrics

HERE = "foretrain"
AS_RUN = "foretrain, samples as run"
RATE = "measured throughput, reference epochs"
HALF_ONLY, EAGER = "foretrain, FP16 where FP8 ran", "foretrain, as plain PyTorch"
PEAK, RULE = "devices at their peak", "devices at 40 % of their peak"
METHODS = (HERE, AS_RUN, RATE, HALF_ONLY, EAGER, PEAK, RULE)
_RULE_SHARE = 0.4
_FEW_NODES = 16
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
    "BERT's sequences are packed: a sample is its 256 tokens on average, of at most 512, and attention is "
    "counted at that mean length.",
)


def run(data: Path) -> SuiteReport:
    """Tell every submission."""
    found, laws = read(data), reference_laws(data)
    closed = [one for one in found.submissions if not one.is_open]
    open_ones = [one for one in found.submissions if one.is_open]
    cases = {one: _case(one, laws[one.benchmark]) for one in closed}
    by_set = {"submissions": _table(list(cases.values()))}
    for name, chosen in _subsets(closed).items():
        by_set[name] = _table([case for one, case in cases.items() if chosen(one)])
    by_set["single runs"] = _table([each for one, case in cases.items() for each in _runs(one, case)])
    by_set["open division, not judged"] = _table([_case(one, laws[one.benchmark]) for one in open_ones])
    return SuiteReport("mlperf_time", tuple(cases.values()), by_set, notes=(*_NOTES, *_said(found)))


def _subsets(submissions: Sequence[Submission]) -> dict[str, Chosen]:
    found: dict[str, Chosen] = {}
    for key, name in BENCHMARKS.items():
        found[name] = lambda one, key=key: one.benchmark == key  # type: ignore[misc]
    for key, name in BENCHMARKS.items():
        for scale, chosen in _SCALES.items():
            found[f"{name}, {scale}"] = lambda one, k=key, c=chosen: one.benchmark == k and c(one)  # type: ignore[misc]
    for device_id in sorted({one.device_id for one in submissions}):
        found[device_id] = lambda one, device_id=device_id: one.device_id == device_id  # type: ignore[misc]
    return found


def _case(one: Submission, law: BatchSizeLaw) -> Case:
    told = tell(one)
    interval = time_to_train(one, told, law)
    samples = samples_to_target(one, law).p50
    busy = told.flop_share * told.step.p50 * samples / one.batch
    by_method = {
        HERE: interval.p50,
        AS_RUN: seconds_to_train(one, told, one.samples),
        HALF_ONLY: seconds_to_train(one, tell(one, HALF), samples),
        EAGER: seconds_to_train(one, tell(one, PLAIN), samples),
        PEAK: busy,
        RULE: busy / _RULE_SHARE,
    }
    if one.throughput is not None:
        by_method[RATE] = (
            samples / one.throughput + evaluations(one, samples) * tell(one, SUBMITTED).evaluation_seconds
        )
    return Case(one.name, one.device_id, one.seconds, by_method, interval)


def _runs(one: Submission, case: Case) -> list[Case]:
    return [
        Case(f"{case.name}, run {number}", case.group, seconds, {HERE: case.predicted[HERE]}, case.interval)
        for number, seconds in enumerate(one.run_seconds)
    ]


def _table(cases: Sequence[Case]) -> dict[str, Metrics]:
    found = {}
    for name in METHODS:
        some = [case for case in cases if name in case.predicted]
        if some:
            found[name] = metrics(some, name, with_interval=name == HERE)
    return found


def _said(found: Read) -> list[str]:
    """What was left out, and how often memory asked for micro-batches."""
    left_out = "; ".join(
        f"{reason}: {len(names)} ({', '.join(names)})" for reason, names in sorted(found.skipped.items())
    )
    split = Counter(
        one.device_id for one in found.submissions if not one.is_open and tell(one).micro_batches > 1
    )
    listed = ", ".join(f"{count} on {name}" for name, count in sorted(split.items())) or "none"
    return [
        f"Left out: {left_out or 'nothing'}.",
        f"Submissions whose batch takes several micro-batches by foretrain's memory: {listed}.",
    ]
