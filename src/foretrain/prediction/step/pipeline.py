"""The step of a pipeline: the passes of its parts, run by the schedule.

    step = max over stages ( end of last pass + remaining exchanges + optimizer )

The passes of a part include the exchanges they wait for, such as tensor-parallel ones. Sends between stages
overlap other work; waiting for them is part of the bubble.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from foretrain.prediction.collectives.costs import Verb
from foretrain.prediction.cost_models import CallTimes
from foretrain.prediction.operators.pricing import Floats
from foretrain.prediction.step.compose import (
    NO_CONTENTION,
    ComposedStep,
    Contention,
    ExchangeSeconds,
    Passes,
    operators_of,
    passes,
    phase_seconds,
    with_waits,
)
from foretrain.prediction.strategies.pipeline.cuts import StageLink
from foretrain.prediction.strategies.pipeline.pipeline import (
    EVEN,
    MemoryBudget,
    Pipeline,
    StageLayers,
    cut_program,
)
from foretrain.prediction.strategies.pipeline.schedules import (
    PipelineRun,
    feasible_schedule,
    pipeline_seconds,
)
from foretrain.prediction.strategies.pipeline.stages import Stage
from foretrain.prediction.strategies.program import (
    Axis,
    Exchange,
    Program,
    When,
    forward_end,
    optimizer_start,
)
from foretrain.prediction.timeline import COMPUTE, Stream, Task, TimedOperator, Timeline
from foretrain.workloads.graph import Phase

_PROBE = float(1 << 20)
"""Size of the smaller of two messages, one twice the other, that give a link's time per byte."""

Replicated = Callable[[Program], Program]


def send(size: float, number: int) -> Exchange:
    """The message between two stages in each micro-batch: activations, or gradients of the same size."""
    return Exchange(f"send to stage {number}", Verb.SEND, size, Axis.PIPELINE, -1, 0, When.EVERY)


def compose_pipeline(
    whole: Program,
    times: CallTimes,
    shape: tuple[str, int, int],
    replicated: Replicated,
    exchange_seconds: ExchangeSeconds,
    budget: MemoryBudget | None = None,
    cutting: Pipeline | None = None,
    layers: StageLayers = EVEN,
    contention: Contention = NO_CONTENTION,
) -> ComposedStep:
    """The step of a program cut into stages; `shape` is the schedule's name, stages and chunks.

    A `cutting` that is given is used with any number of micro-batches.
    """
    name, stages, chunks = shape
    order = feasible_schedule(name, stages, whole.micro_batches, chunks)
    if cutting is None:
        cutting = cut_program(whole, times.device, order, link_of(exchange_seconds), budget, layers)
    else:
        cutting = cutting.under(order)
    costs = _part_costs(cutting, times, replicated, exchange_seconds, contention)
    transfers = [exchange_seconds(send(size, 0)) for size in cutting.cut_bytes]
    forward = [each.forward for each in costs.passes]
    backward = [each.backward for each in costs.passes]
    run = pipeline_seconds(forward, backward, transfers, order)
    seconds = max(float(run.ends[stage].max()) + costs.after(stage) for stage in range(order.stages))
    busiest = int(np.argmax([costs.busy(stage) for stage in range(order.stages)]))
    computing = costs.computing(busiest)
    waiting = costs.waiting(busiest)
    exposed = max(0.0, costs.busy(busiest) - computing - waiting)
    return ComposedStep(
        seconds=seconds,
        draw=partial(_timeline, run, costs, transfers),
        phases=costs.phases(busiest),
        computing_seconds=computing,
        exposed_seconds=exposed,
        bubble_seconds=max(0.0, seconds - computing - exposed - waiting),
        waiting_seconds=waiting,
        stages=tuple(
            _with_sends(replicated(stage.program), cutting, number)
            for number, stage in enumerate(cutting.stages)
        ),
        in_flight=cutting.in_flight,
        busiest=busiest,
        calls=cutting.stages[busiest].calls,
        update_share=sum(cutting.update_shares[part] for part in cutting.of_stage(busiest)),
    )


def link_of(exchange_seconds: ExchangeSeconds) -> StageLink:
    """The link between neighbouring stages, from the times of two messages."""
    one, two = (exchange_seconds(send(size, 0)) for size in (_PROBE, 2 * _PROBE))
    per_byte = max(0.0, two - one) / _PROBE
    return StageLink(per_byte, max(0.0, one - per_byte * _PROBE))


def _with_sends(program: Program, cutting: Pipeline, stage: int) -> Program:
    """A stage's program with its sends: activations after each of its parts, gradients before."""
    sizes = [cutting.cut_bytes[part] for part in cutting.of_stage(stage) if part < len(cutting.cut_bytes)]
    sizes += [cutting.cut_bytes[part - 1] for part in cutting.of_stage(stage) if part > 0]
    sends = [send(size, number) for number, size in enumerate(sizes, start=1)]
    return program.with_axis(Axis.PIPELINE, cutting.schedule.stages, *sends)


@dataclass(frozen=True, eq=False)
class _PartCosts:
    """Passes of a micro-batch on each part of a pipeline; device and host seconds of a step by phase.

    `times` are those of the calls of each part.
    """

    cutting: Pipeline
    times: tuple[CallTimes, ...]
    passes: tuple[Passes, ...]
    device: Floats
    host: Floats

    def busy(self, stage: int) -> float:
        """Time a stage is busy in a step, including the exchanges it waits for."""
        mine = self.cutting.of_stage(stage)
        rounds = self.cutting.schedule.micro_batches
        each_round = sum(self.passes[part].forward + self.passes[part].backward for part in mine)
        return rounds * each_round + self.after(stage)

    def after(self, stage: int) -> float:
        """Exchanges and update after the last pass of a stage."""
        mine = self.cutting.of_stage(stage)
        return max(self.passes[part].tail for part in mine) + sum(
            self.passes[part].optimizer for part in mine
        )

    def waiting(self, stage: int) -> float:
        """Time a stage waits for launches in a step."""
        rounds = self.cutting.schedule.micro_batches
        mine = [self.passes[part] for part in self.cutting.of_stage(stage)]
        return sum(rounds * each.waiting + each.update_waiting for each in mine)

    def computing(self, stage: int) -> float:
        """Time the device of a stage computes in a step."""
        return float(self.device[list(self.cutting.of_stage(stage))].sum())

    def operators(self, parts: Sequence[int], phase: Phase) -> list[TimedOperator]:
        """The calls of a phase on some parts."""
        listed = []
        for part in parts:
            graph = self.cutting.parts[part].program.graph
            bounds = (0, forward_end(graph), optimizer_start(graph), len(graph.calls))
            start, end = bounds[(place := list(Phase).index(phase))], bounds[place + 1]
            listed += operators_of(graph, self.times[part].device, slice(start, end))
        return listed

    def phases(self, stage: int) -> dict[Phase, float]:
        """Computing and waiting for launches by phase."""
        mine = list(self.cutting.of_stage(stage))
        return with_waits(self.device[mine].sum(axis=0), self.host[mine].sum(axis=0), self.waiting(stage))


def _part_costs(
    cutting: Pipeline,
    times: CallTimes,
    replicated: Replicated,
    exchange_seconds: ExchangeSeconds,
    contention: Contention,
) -> _PartCosts:
    each, spent_by_phase, of_calls = [], [], []
    for part, share in zip(cutting.parts, cutting.update_shares, strict=True):
        program, spent = replicated(part.program), _of_part(times, part, share)
        each.append(passes(program, spent, exchange_seconds, contention))
        spent_by_phase.append(phase_seconds(spent, program))
        of_calls.append(spent)
    device, host = (np.array(column) for column in zip(*spent_by_phase, strict=True))
    return _PartCosts(cutting, tuple(of_calls), tuple(each), device, host)


def _of_part(times: CallTimes, part: Stage, share: float) -> CallTimes:
    """The times of a part's calls; those of the optimizer are scaled by the part's share of parameters."""
    mine = times.where(part.calls)
    start = optimizer_start(part.program.graph)
    scale = np.append(np.ones(start), np.full(len(part.calls) - start, share))
    return CallTimes(mine.device * scale, mine.host * scale)


def _timeline(run: PipelineRun, costs: _PartCosts, transfers: Sequence[float]) -> Timeline:
    """Passes, sends, remaining exchanges and updates, stage by stage."""
    order = costs.cutting.schedule
    listed: list[_Placed] = []
    sent: dict[Stream, float] = {}
    for stage, slots in enumerate(order):
        for slot, start, end in zip(slots, run.starts[stage], run.ends[stage], strict=True):
            forward = slot.phase is Phase.FORWARD
            part = slot.chunk * order.stages + slot.stage
            boundary = part if forward else part - 1
            name = f"{slot.phase} micro-batch {slot.micro_batch + 1}"
            if order.chunks > 1:
                name += f", chunk {slot.chunk + 1}"
            task = Task(name, Stream(stage, COMPUTE), end - start, kind=slot.phase)
            listed.append(_Placed(task, start, end, (part,)))
            if 0 <= boundary < len(transfers):
                lane = Stream(stage, "send forward" if forward else "send back")
                task = Task(
                    f"send micro-batch {slot.micro_batch + 1}", lane, transfers[boundary], kind="send"
                )
                start = max(end, sent.get(lane, 0.0))
                sent[lane] = start + transfers[boundary]
                listed.append(_Placed(task, start, sent[lane]))
        listed += _afterwards(costs, stage, float(run.ends[stage].max()))
    listed.sort(key=lambda item: item.start)
    tasks, starts, ends, _ = zip(*listed, strict=True)
    return Timeline(tuple(tasks), np.array(starts), np.array(ends), partial(_operators, costs, listed))


class _Placed(NamedTuple):
    """A task, when it runs, and the parts of the pipeline it computes."""

    task: Task
    start: float
    end: float
    parts: tuple[int, ...] = ()


def _operators(costs: _PartCosts, listed: Sequence[_Placed], task: int) -> list[TimedOperator]:
    return costs.operators(listed[task].parts, Phase(listed[task].task.kind)) if listed[task].parts else []


def _afterwards(costs: _PartCosts, stage: int, end: float) -> list[_Placed]:
    """Gradient exchange and update after the last pass of a stage."""
    mine = costs.cutting.of_stage(stage)
    tail = max(costs.passes[part].tail for part in mine)
    update = sum(costs.passes[part].optimizer for part in mine)
    exchange = Task("exchange gradients", Stream(stage, "dp exchange"), tail, kind=Verb.ALL_REDUCE)
    updating = Task("optimizer", Stream(stage, COMPUTE), update, kind=Phase.OPTIMIZER)
    exchanges = [_Placed(exchange, end, end + tail)] if tail > 0 else []
    return [*exchanges, _Placed(updating, end + tail, end + tail + update, tuple(mine))]
