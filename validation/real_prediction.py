"""Steps of several workers on this machine, predicted by foretrain's programs and timelines.

Strategies place their exchanges in the recorded graph as for any cluster (`prediction.strategies`). What
differs is the machine: its workers share cores with each other and with their own exchanges
(`experiments.shared_cores`), gloo's exchanges cost what the micro-benchmarks say, and FSDP and the parameter
server wait for each of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
from experiments.shared_cores import simulate_on_cores

from experiments import chain_models
from foretrain.prediction.collectives.costs import Verb
from foretrain.prediction.cost_models import CallTimes
from foretrain.prediction.operators.pricing import Floats
from foretrain.prediction.step.compose import compose
from foretrain.prediction.stragglers import WorkerTimes
from foretrain.prediction.strategies.data_parallel import data_parallel
from foretrain.prediction.strategies.parameter_server import Server, ps_update
from foretrain.prediction.strategies.pipeline.schedules import pipeline_tasks, schedule
from foretrain.prediction.strategies.program import Exchange, Program, gradients, optimizer_start
from foretrain.prediction.strategies.sharded import shard_program
from foretrain.prediction.strategies.strategy import Variant
from foretrain.prediction.timeline import COMPUTE, Stream, Task
from foretrain.workloads.graph import Graph, Phase
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.rules import operators
from foretrain.workloads.workload import graph_of, workload_of
from validation.real_calibration import Calibration, Solo
from validation.real_cases import BATCHES, MICRO_BATCHES, RealCase

_COLLECTIVES = {
    Verb.ALL_REDUCE: "all_reduce",
    Verb.ALL_GATHER: "all_gather",
    Verb.REDUCE_SCATTER: "reduce_scatter",
}
_FLOP_PER_BYTE = 8.0
"""Of a core, roughly; it only divides a block's measured time among the block's own calls."""


def predicted_seconds(case: RealCase, known: Calibration) -> float:
    """The time of a step, from what was measured without training on several workers."""
    return _PREDICTORS[case.strategy](case, known)


@cache
def graph_of_model(model: str) -> Graph:
    """The recorded step of one worker."""
    model_file = f"{chain_models.__file__}:traced_{model}"
    request = WorkloadRequest(model_file, batch=BATCHES[model], optimizer="momentum")
    return graph_of(workload_of(request))


def call_seconds(graph: Graph, solo: Solo) -> Floats:
    """Seconds of each call: a block's measured time, divided among its calls by what they have to do."""
    count = len(graph.calls)
    work = np.zeros(count)
    for op in operators(graph):
        moved = op.work.read_bytes + op.work.write_bytes
        work[op.call] += max(op.work.flop / _FLOP_PER_BYTE, moved) if op.work.kernels else 0.0
    groups: dict[tuple[Phase, int], list[int]] = defaultdict(list)
    last = len(solo.forward_seconds) - 1
    for index, call in enumerate(graph.calls):
        first = call.module.split(".")[0]
        block = int(first) if first.isdigit() else last
        groups[call.phase, 0 if call.phase is Phase.OPTIMIZER else block].append(index)
    seconds = np.zeros(count)
    for (phase, block), indices in groups.items():
        total = {
            Phase.FORWARD: solo.forward_seconds,
            Phase.BACKWARD: solo.backward_seconds,
            Phase.OPTIMIZER: (solo.optimizer_seconds,),
        }[phase][block]
        seconds[indices] = total * work[indices] / (work[indices].sum() or 1.0)
    return seconds


def _ddp(case: RealCase, known: Calibration) -> float:
    graph = graph_of_model(case.model)
    seconds = call_seconds(graph, known.solo[case.model])
    for gradient in gradients(graph):  # into its bucket, and back before the update
        seconds[gradient.ready] += gradient.bytes / known.copy_bytes_per_second
        seconds[optimizer_start(graph)] += gradient.bytes / known.copy_bytes_per_second
    program = data_parallel(Program(graph), case.workers)
    return _composed(case, known, program, seconds)


def _fsdp(case: RealCase, known: Calibration) -> float:
    graph = graph_of_model(case.model)
    seconds = call_seconds(graph, known.solo[case.model])
    update = optimizer_start(graph)
    seconds[update:] /= case.workers
    program = shard_program(Program(graph), case.workers, 3)
    blocking = replace(program, exchanges=tuple(_blocking(exchange) for exchange in program.exchanges))
    return _composed(case, known, blocking, seconds, copies=True)


def _blocking(exchange: Exchange) -> Exchange:
    """Started only when it is needed, and waited for at once: on a CPU there is no stream to run it on."""
    if exchange.verb is Verb.ALL_GATHER:
        return exchange._replace(after=exchange.before - 1)
    return exchange._replace(before=exchange.after + 1)


def _composed(
    case: RealCase, known: Calibration, program: Program, seconds: Floats, copies: bool = False
) -> float:
    """A program's tasks, on cores that workers share; workers are identical, so one core stands for all."""
    shares: dict[str, float] = {}

    def cost(exchange: Exchange) -> float:
        point = known.curves[_COLLECTIVES[exchange.verb], case.cap].at(exchange.bytes)
        copied = exchange.bytes / known.clone_bytes_per_second if copies else 0.0
        total = point.seconds + copied
        shares[exchange.name] = (point.share * point.seconds + copied) / total
        return total

    alone = compose(program, CallTimes(seconds, np.zeros_like(seconds)), cost).timeline.tasks
    together = -(-case.workers // known.cores)
    tasks: list[Task] = []
    for worker in range(together):
        offset = len(tasks)
        tasks += [
            task._replace(
                stream=Stream(worker, task.stream.lane), after=tuple(offset + before for before in task.after)
            )
            for task in alone
        ]
    cores = dict.fromkeys(range(together), 0)
    return simulate_on_cores(tasks, cores, lambda task: shares.get(task.name, 1.0)).seconds


def _parameter_server(case: RealCase, known: Calibration) -> float:
    """Passes on shared cores; then pushes and answers of all at once, with the update in between."""
    solo = known.solo[case.model]
    size = sum(gradient.bytes for gradient in gradients(graph_of_model(case.model)))
    together = -(-case.workers // known.cores)
    passes = sum(solo.forward_seconds) + sum(solo.backward_seconds) + size / known.copy_bytes_per_second
    exchanged = known.curves["push_pull", case.cap].at(size).seconds
    added = case.workers * size / known.add_bytes_per_second  # the last of them divides
    server = Server(exchanged / (2 * case.workers), added + solo.optimizer_seconds)
    update = ps_update(Variant.SYNC, case.workers, case.workers, WorkerTimes(together * passes), server)
    return update.seconds_per_update


def _pipeline(case: RealCase, known: Calibration) -> float:
    """1F1B over the blocks: passes on cores that stages share, and messages between neighbours."""
    solo = known.solo[case.model]
    each = len(solo.forward_seconds) // case.workers
    sends = [
        known.curves["send", case.cap].at(solo.boundary_bytes[(stage + 1) * each - 1])
        for stage in range(case.workers - 1)
    ]
    tasks = pipeline_tasks(
        schedule("1f1b", case.workers, MICRO_BATCHES),
        _sums(solo.forward_seconds, each),
        _sums(solo.backward_seconds, each),
        [sent.seconds for sent in sends],
        rendezvous=True,
    )
    update = solo.optimizer_seconds / case.workers
    tasks += [Task("update", Stream(stage, COMPUTE), update) for stage in range(case.workers)]
    cores = {stage: stage % known.cores for stage in range(case.workers)}
    shares = {f"send {boundary}": sent.share for boundary, sent in enumerate(sends)}
    return simulate_on_cores(tasks, cores, lambda task: shares.get(task.name, 1.0)).seconds


def _sums(seconds: tuple[float, ...], each: int) -> list[float]:
    return [sum(seconds[start : start + each]) for start in range(0, len(seconds), each)]


_PREDICTORS: dict[str, Callable[[RealCase, Calibration], float]] = {
    "ddp": _ddp,
    "parameter_server": _parameter_server,
    "fsdp": _fsdp,
    "pipeline": _pipeline,
}
