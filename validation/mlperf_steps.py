"""What foretrain says of an MLPerf submission, from model, hardware and the reference's epochs alone.

    time = samples(batch) / batch · step + evaluations · evaluation

MLPerf's clock starts when data is first touched, so nothing is added for starting up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from foretrain.convergence.batch_size import BatchSizeLaw
from foretrain.estimates import Quantiles
from foretrain.facts.hardware import hardware
from foretrain.prediction.cost_models import OperatorCostModel
from foretrain.prediction.options import InputOptions, Parallelism
from foretrain.prediction.scenario import Evaluation, StepConfiguration, evaluate, step_context
from foretrain.prediction.strategies.strategy import layout_of
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.workload import Workload, graph_at, workload_of
from validation.mlperf_cases import BERT, RESNET, Submission, facts

_MASKED_BERT = f"{Path(__file__).parent / 'mlperf_bert.py'}:masked_bert"


@dataclass(frozen=True, slots=True)
class Stack:
    """How the software trains: which of the tricks of MLPerf's submissions it knows.

    `sharded_update` and `fp8` name the benchmarks they are used in; `jitter` is how much step times vary
    between devices.
    """

    fused_kernels: bool = False
    master_weights: bool = False
    cuda_graphs: bool = False
    overlapped_reduction: bool = True
    sharded_update: tuple[str, ...] = ()
    fp8: tuple[str, ...] = ()
    jitter: float | None = None


def submitted() -> Stack:
    """As NVIDIA's code does, by `mlperf_facts.toml`."""
    known = facts()["stack"]
    return Stack(
        known["fused_kernels"],
        known["master_weights"],
        known["cuda_graphs"],
        known["overlapped_reduction"],
        tuple(known["sharded_update"]),
        tuple(known["fp8"]),
    )


SUBMITTED = submitted()
HALF = replace(SUBMITTED, fp8=())
EVEN = replace(SUBMITTED, jitter=0.0)
PLAIN = Stack()
"""Autocast, DDP and no fused kernels, images channels-last all the same."""


@dataclass(frozen=True, slots=True)
class StepAndEvaluation:
    """A step and an evaluation of a submission. `flop_share` is that of the devices' peak a step reaches."""

    step: Quantiles
    evaluation_seconds: float
    flop_share: float
    micro_batches: int
    is_fp8: bool = False


def samples_to_target(one: Submission, law: BatchSizeLaw) -> Quantiles:
    """What the reference needs at this batch, in samples."""
    return law.epochs_at(one.batch).scale(facts()[RESNET]["images"] if one.benchmark == RESNET else 1)


def evaluations(one: Submission, samples: float) -> float:
    """How often a run over `samples` samples is evaluated, by MLPerf's rules."""
    known = facts()[one.benchmark]
    if one.benchmark == RESNET:
        return float(math.ceil(samples / known["images"] / known["evaluate_every_epochs"]))
    wanted = known["evaluation_share"] * (
        known["evaluation_batch_factor"] * one.batch + known["evaluation_samples_offset"]
    )
    rounding = known["evaluation_rounding"]
    return float(samples / (wanted // rounding * rounding))


def seconds_to_train(one: Submission, times: StepAndEvaluation, samples: float) -> float:
    """The time of a run over `samples` samples."""
    return samples / one.batch * times.step.p50 + evaluations(one, samples) * times.evaluation_seconds


def time_to_train(one: Submission, times: StepAndEvaluation, law: BatchSizeLaw) -> Quantiles:
    """The time to the target; how long a step takes and how many are needed err independently."""
    samples = samples_to_target(one, law)
    middle = seconds_to_train(one, times, samples.p50)
    below, above = (
        math.hypot(*(getattr(each, end) / each.p50 - 1 for each in (times.step, samples)))
        for end in ("p10", "p90")
    )
    return Quantiles(middle * max(0.0, 1 - below), middle, middle * (1 + above))


@cache
def step_and_evaluation(one: Submission, stack: Stack = SUBMITTED) -> StepAndEvaluation:
    """The step and the evaluation of a submission whose software is like `stack`."""
    evaluation = _outcome(one, stack)
    return StepAndEvaluation(
        evaluation.total.quantiles,
        _evaluation_seconds(one, stack, evaluation.configuration.micro_batch),
        evaluation.throughput.mfu,
        evaluation.configuration.micro_batches,
        evaluation.context.workload.options.precision == "fp8",
    )


def _outcome(one: Submission, stack: Stack) -> Evaluation:
    """The step in as few micro-batches as memory allows."""
    machines = hardware(one.hardware)
    parallelism = Parallelism(network=one.network if one.nodes > 1 else None, jitter=stack.jitter)
    context = step_context(_workload(one, stack), machines, parallelism, OperatorCostModel(), InputOptions())
    layout = layout_of(_strategy(one, stack), one.devices, one.devices_per_node)
    own_batch = one.batch // one.devices
    for count in _divisors(own_batch):
        evaluation = evaluate(context, StepConfiguration(layout, own_batch, count))
        if evaluation.memory.fits:
            break
    return evaluation


def _strategy(one: Submission, stack: Stack) -> str:
    """Plain data parallelism, or with each node's devices sharing the update."""
    parts = [f"dp={one.devices}"]
    if one.benchmark in stack.sharded_update:
        parts += ["zero=1", f"shard={one.devices_per_node}"]
    return ",".join([*parts, *([] if stack.overlapped_reduction else ["overlap=no"])])


def _workload(one: Submission, stack: Stack, forward_only: bool = False) -> Workload:
    device = hardware(one.hardware).device
    has_fp8 = device.sheet.has("fp8_tensor_flop_per_second")
    is_fp8 = has_fp8 and one.benchmark in stack.fp8
    is_bert = one.benchmark == BERT
    return workload_of(
        WorkloadRequest(
            _MASKED_BERT if is_bert else "resnet50",
            seq_len=_mean_length() if is_bert else None,
            precision="fp8" if is_fp8 else "fp16",
            optimizer="adamw" if is_bert else "momentum",
            channels_last=not is_bert,
            compile=stack.fused_kernels,
            cuda_graphs=stack.cuda_graphs,
            master_weights=stack.master_weights and not is_fp8,
            forward_only=forward_only,
        )
    )


def _mean_length() -> int:
    known = facts()[BERT]
    tokens: float = known["longest_sequence"] / known["packing_limit"]
    return round(tokens)


def _evaluation_seconds(one: Submission, stack: Stack, most: int) -> float:
    """The forward pass of one device's share of the evaluation samples, in batches no larger than `most`."""
    share: int = math.ceil(facts()[one.benchmark]["evaluation_samples"] / one.devices)
    rounds = math.ceil(share / most)
    graph = graph_at(_workload(one, stack, forward_only=True), math.ceil(share / rounds))
    device = hardware(one.hardware).device
    return rounds * OperatorCostModel().estimate(graph, device).estimate.value


def _divisors(number: int) -> Iterator[int]:
    return (count for count in range(1, number + 1) if number % count == 0)
