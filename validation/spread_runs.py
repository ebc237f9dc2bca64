"""Many measured layouts of few models: each model is divided, priced and cut once, then spread many times."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from calibration.datasets.transformer_graphs import Transformer, graph_at
from calibration.frameworks import LayoutParts, StageParts, summed

from foretrain.facts.devices import Device
from foretrain.prediction.collectives.network import Network
from foretrain.prediction.cost_models import CallTimes, CostModel, PricedStep, call_times
from foretrain.prediction.memory.estimate import MemoryEstimate, fullest_stage
from foretrain.prediction.operators.pricing import Flags, Floats
from foretrain.prediction.step.parallel import (
    ParallelStep,
    StepEnvironment,
    compose_step,
    exchange_costs,
)
from foretrain.prediction.step.pipeline import link_of
from foretrain.prediction.strategies.pipeline.pipeline import (
    Pipeline,
    cut_program,
    cut_program_before,
)
from foretrain.prediction.strategies.pipeline.schedules import feasible_schedule, peak_in_flight
from foretrain.prediction.strategies.program import Axis, Program, When, optimizer_start, parameter_bytes
from foretrain.prediction.strategies.sharded import with_sharded_optimizer
from foretrain.prediction.strategies.strategy import Layout, divide_step, replication
from foretrain.workloads.executed import ExecutedGraph
from foretrain.workloads.graph import Graph, Phase
from foretrain.workloads.ops import MATRIX_KINDS

BLOCKS = "blocks."


@dataclass(frozen=True, slots=True)
class Run:
    """What was run: `batch` sequences in each of `micro_batches` micro-batches of a replica.

    `starts` are the modules that pipeline stages after the first begin with, where that is known.
    """

    model: Transformer
    layout: Layout
    batch: int
    micro_batches: int
    network: Network
    starts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Held:
    """What a device holds, the micro-batches in flight on it, and its number of blocks."""

    estimate: MemoryEstimate
    in_flight: float
    blocks: int


@dataclass(frozen=True, slots=True)
class Memory:
    """What devices of the first and of the fullest stage hold, and whether the latter fits."""

    first: Held
    fullest: Held

    @property
    def fits(self) -> bool:
        """Whether the fullest fits."""
        return self.fullest.estimate.fits


@dataclass(frozen=True, eq=False)
class Divided:
    """One device's program of one micro-batch, with the times of its calls; cuts by number of stages."""

    program: Program
    step: PricedStep
    times: CallTimes
    cuts: dict[int, Pipeline]
    updates: dict[int, CallTimes]

    @cached_property
    def update(self) -> int:
        """The first call of the optimizer."""
        return optimizer_start(self.program.graph)

    @cached_property
    def products(self) -> Floats:
        """Seconds of each call's products."""
        priced = self.step.priced
        is_product = np.array([op.work.kind in MATRIX_KINDS for op in priced.ops], bool)
        calls = np.array([op.call for op in priced.ops], int)
        count = len(self.program.graph.calls)
        return np.bincount(calls, priced.seconds * is_product, count).astype(np.float64)

    @cached_property
    def in_blocks(self) -> Flags:
        """Which calls belong to the repeated blocks; one of no module goes with the call before it."""
        flags, inside = [], False
        for call in self.program.graph.calls:
            if call.module or call.phase is Phase.FORWARD:
                inside = call.module.startswith(BLOCKS)
            flags.append(inside)
        return np.array(flags, bool)


class Bench:
    """Programs are kept for the last (model, tensor degree, batch) alone: hand runs in in that order."""

    def __init__(self, device: Device, model: CostModel) -> None:
        self._device, self._model = device, model
        self._key: tuple[object, ...] = ()
        self._divided: Divided | None = None

    def divided(self, run: Run) -> Divided:
        """The program of a micro-batch, divided and priced."""
        key = (run.model, run.layout.tensor, run.layout.sequence_parallel, run.batch)
        if key != self._key or self._divided is None:
            whole = divide_step(ExecutedGraph(graph_at(run.model, run.batch)), run.layout)
            step = self._model.price(whole.graph, self._device)
            self._key, self._divided = key, Divided(whole, step, call_times(step), {}, {})
        return self._divided

    def cut(self, run: Run) -> Pipeline | None:
        """Where the program is cut into stages; None without a pipeline."""
        divided_model, layout = self.divided(run), run.layout
        if layout.pipeline == 1:
            return None
        if layout.pipeline not in divided_model.cuts:
            divided_model.cuts[layout.pipeline] = self._cut(divided_model, run)
        return divided_model.cuts[layout.pipeline]

    def _cut(self, divided_model: Divided, run: Run) -> Pipeline:
        layout = run.layout
        order = feasible_schedule(layout.schedule, layout.pipeline, 2 * layout.pipeline, layout.chunks)
        if len(run.starts) == layout.pipeline - 1:
            return cut_program_before(divided_model.program, divided_model.times.device, order, run.starts)
        costs = exchange_costs(layout, StepEnvironment(self._device, run.network, self._model))
        link = link_of(lambda exchange: costs(exchange).seconds)
        return cut_program(divided_model.program, divided_model.times.device, order, link)

    def spread(self, run: Run) -> ParallelStep:
        """The step of a run."""
        divided_model = self.divided(run)
        at = StepEnvironment(self._device, run.network, self._model)
        whole = replace(divided_model.program, micro_batches=run.micro_batches)
        return compose_step(
            whole, divided_model.step, self._times(divided_model, run.layout), run.layout, at, self.cut(run)
        )

    def memory(self, run: Run) -> Memory:
        """What devices of a run hold."""
        cutting = self.cut(run)
        stages: tuple[Program, ...] = (self.divided(run).program,)
        held: tuple[float, ...] = (1.0,)
        if cutting is not None:
            order = feasible_schedule(run.layout.schedule, run.layout.pipeline, run.micro_batches, 1)
            stages = tuple(stage.program for stage in cutting.stages)
            held = tuple(float(count) for count in peak_in_flight(order))
        stages = tuple(replace(stage, micro_batches=run.micro_batches) for stage in stages)
        number, estimate = fullest_stage(stages, held, run.layout, self._device)
        fullest = Held(estimate, held[number], _blocks(stages[number].graph))
        if number == 0:
            return Memory(fullest, fullest)
        _, estimate = fullest_stage(stages[:1], held[:1], run.layout, self._device)
        return Memory(Held(estimate, held[0], _blocks(stages[0].graph)), fullest)

    def parts(self, run: Run) -> LayoutParts:
        """The parts of a run's step."""
        divided_model, cutting = self.divided(run), self.cut(run)
        count = 1 if cutting is None else len(cutting.parts)
        stage = np.zeros(len(divided_model.program.graph.calls), np.int64)
        if cutting is not None:
            for number, part in enumerate(cutting.parts):
                stage[part.calls] = number
        stage[divided_model.update :] = -1
        at = StepEnvironment(self._device, run.network, self._model)
        costs = exchange_costs(run.layout, at)
        programs = [divided_model.program] if cutting is None else [part.program for part in cutting.parts]
        between = [[one for one in part.exchanges if one.axis is Axis.TENSOR] for part in programs]
        device, everything = divided_model.times.device, np.ones(len(stage), bool)
        fullest = int(np.argmax([parameter_bytes(part.graph) for part in programs]))
        whole = replication(run.layout).replicate(programs[fullest], run.layout)
        return LayoutParts(
            stages=StageParts(
                products=summed(divided_model.products, stage, count, divided_model.in_blocks),
                others=summed(device - divided_model.products, stage, count, divided_model.in_blocks),
                outside=summed(device, stage, count, ~divided_model.in_blocks),
                exchanging=np.array([sum(costs(one).seconds for one in listed) for listed in between]),
                launching=summed(divided_model.times.host, stage, count, everything),
                exchanges=np.array([float(len(listed)) for listed in between]),
            ),
            micro_batches=run.micro_batches,
            tensor=run.layout.tensor,
            nodes=run.network.nodes,
            devices_per_node=run.network.devices_per_node,
            replicas=run.layout.replicas,
            reducing=sum(costs(one).seconds for one in whole.exchanges if one.when is When.LAST),
            updating=float(self._times(divided_model, run.layout).device[divided_model.update :].sum())
            * (1.0 if cutting is None else cutting.update_shares[fullest]),
        )

    def _times(self, divided_model: Divided, layout: Layout) -> CallTimes:
        """The times of the calls, with an optimizer that updates this device's share."""
        if layout.zero_stage == 0 or layout.shard == 1:
            return divided_model.times
        if layout.shard not in divided_model.updates:
            graph = divided_model.program.graph
            only = replace(graph, calls=graph.calls[divided_model.update :])
            share = with_sharded_optimizer(only, layout.shard)
            divided_model.updates[layout.shard] = call_times(self._model.price(share, self._device))
        share_times = divided_model.updates[layout.shard]
        return CallTimes(
            np.append(divided_model.times.device[: divided_model.update], share_times.device),
            np.append(divided_model.times.host[: divided_model.update], share_times.host),
        )


def _blocks(graph: Graph) -> int:
    """How many of the repeated blocks a stage runs."""
    modules = (call.module for call in graph.calls if call.module.startswith(BLOCKS))
    return len({module.split(".")[1] for module in modules})
