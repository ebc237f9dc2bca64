"""A training step spread over many devices: its program, its time and its parts.

The graph is divided along tensor, context and expert axes; its calls are priced; a pipeline cuts it into
stages; replicas add their exchanges to each stage; streams and schedule compose the step. The parts are those
of the busiest stage, and what it waits for: exchanges, other stages, launches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from foretrain.estimates import Estimate, Part
from foretrain.facts.devices import Device
from foretrain.prediction.collectives._base import Collective, CollectiveCost, Group, Verb
from foretrain.prediction.collectives.catalogue import collective_cost
from foretrain.prediction.collectives.network import Network
from foretrain.prediction.cost_models.priced_step import (
    CallTimes,
    PricedStep,
    call_times,
    kind_parts,
    modelled_share,
    waiting_part,
)
from foretrain.prediction.cost_models.step_models import CostModel
from foretrain.prediction.step.compose import ComposedStep, compose, times_happening
from foretrain.prediction.step.pipeline import compose_pipeline
from foretrain.prediction.strategies.context import context_parallel
from foretrain.prediction.strategies.data_parallel import data_parallel
from foretrain.prediction.strategies.expert import expert_parallel
from foretrain.prediction.strategies.gradients import optimizer_start, reduced_last
from foretrain.prediction.strategies.layout import Layout
from foretrain.prediction.strategies.pipeline.pipeline import Pipeline, Room
from foretrain.prediction.strategies.program import Axis, Exchange, Program, compiled, group_along, neighbours
from foretrain.prediction.strategies.sharded import sharded, with_sharded_optimizer
from foretrain.prediction.strategies.single_process import launched_by_one, single_process
from foretrain.prediction.strategies.tensor import tensor_parallel
from foretrain.workloads.fusion import unfused
from foretrain.workloads.graph import Graph
from foretrain.workloads.rules import unknown_names

EXPOSED = "waiting for exchanges"
OVERLAPPED = "overlapped exchanges"
BUBBLE = "waiting for other stages"


@dataclass(frozen=True)
class Environment:
    """What stays the same while layouts vary: the device, the network, and what tells the time of calls."""

    device: Device
    network: Network
    model: CostModel


@dataclass(frozen=True, slots=True)
class Traffic:
    """Exchanges of one verb along the same axes in one step, as one device sees them."""

    name: str
    verb: Verb
    axes: tuple[Axis, ...]
    members: int
    count: int
    bytes: float
    seconds: float
    algorithm: str
    tier: str
    p10: float
    p90: float
    source: str


@dataclass(frozen=True, eq=False)
class Spread:
    """A step spread over devices: its time with parts, how it came about, and what was exchanged."""

    layout: Layout
    estimate: Estimate
    run: ComposedStep
    traffic: tuple[Traffic, ...]
    priced: PricedStep
    notes: tuple[str, ...] = ()
    staleness: float | None = None

    @property
    def unmodelled(self) -> tuple[str, ...]:
        """Operators no rule knows."""
        return unknown_names(self.priced.priced.ops)

    @property
    def modelled_share(self) -> float:
        """How much of the device's time is told by a model."""
        return modelled_share(self.priced.priced)

    @property
    def seconds(self) -> float:
        """The median."""
        return self.estimate.value

    @property
    def communication_seconds(self) -> float:
        """What all exchanges of a step take, waited for or not."""
        return sum(each.seconds for each in self.traffic)

    @property
    def coordination_ratio(self) -> float:
        """Time spent on exchanges, over time spent computing."""
        computing = self.run.computing_seconds
        return self.communication_seconds / computing if computing else 0.0

    @property
    def moved_bytes(self) -> float:
        """Bytes of all messages of a step."""
        return sum(each.bytes for each in self.traffic)


def divided(graph: Graph, layout: Layout) -> Program:
    """The program of one device, divided along the axes that cut through layers, then compiled if it is."""
    if layout.tensor * layout.context * layout.expert == 1:
        return compiled(Program(graph))
    program = tensor_parallel(Program(unfused(graph)), layout.tensor, layout.sequence_parallel)
    program = context_parallel(program, layout.context)
    return compiled(expert_parallel(program, layout.expert))


def replicated(program: Program, layout: Layout) -> Program:
    """A stage's program with the exchanges between its replicas."""
    if layout.is_single_process:
        return single_process(program, layout.data)
    if layout.zero_stage:
        program = sharded(program, layout.shard, layout.zero_stage, layout.data)
    else:
        program = data_parallel(program, layout.data, compression=layout.compression)
    return program if layout.overlaps else reduced_last(program)


def spread(graph: Graph, layout: Layout, micro_batches: int, at: Environment) -> Spread:
    """The step of `graph` (one micro-batch of one replica) spread by a layout."""
    whole = replace(divided(graph, layout), micro_batches=micro_batches)
    step = at.model.priced(whole.graph, at.device)
    times = call_times(step)
    if layout.is_single_process:
        times = launched_by_one(times, whole.graph, layout.data)
    return spread_priced(whole, step, _with_shares(times, whole, layout, at), layout, at)


def _with_shares(times: CallTimes, program: Program, layout: Layout, at: Environment) -> CallTimes:
    """The same times with an optimizer that updates only this device's share."""
    if layout.zero_stage == 0 or layout.shard == 1:
        return times
    start = optimizer_start(program.graph)
    only = replace(program.graph, calls=program.graph.calls[start:])
    if not only.calls:
        return times
    share = call_times(at.model.priced(with_sharded_optimizer(only, layout.shard), at.device))
    return CallTimes(np.append(times.device[:start], share.device), np.append(times.host[:start], share.host))


def spread_priced(
    whole: Program,
    step: PricedStep,
    times: CallTimes,
    layout: Layout,
    at: Environment,
    cutting: Pipeline | None = None,
) -> Spread:
    """The step of a divided program whose calls take the given times, cut into the stages of `cutting`."""
    costs = exchange_costs(layout, at)

    def seconds(exchange: Exchange) -> float:
        return costs(exchange).seconds + exchange.host_seconds

    if layout.pipeline == 1:
        run = compose(replicated(whole, layout), times, seconds)
    else:
        room = Room(at.device.memory_bytes, layout.zero_stage, layout.shard)
        shape = (layout.schedule, layout.pipeline, layout.chunks)
        run = compose_pipeline(
            whole, times, shape, lambda part: replicated(part, layout), seconds, room, cutting
        )
    busiest = run.stages[run.busiest]
    traffic = tuple(_traffic(busiest, costs, layout, at))
    return Spread(
        layout=layout,
        estimate=Estimate("s", (*_compute_parts(step, times, run, whole), *_waits(run, traffic, step))),
        run=run,
        traffic=traffic,
        priced=step,
        notes=whole.notes,
    )


Costs = Callable[[Exchange], CollectiveCost]


def exchange_costs(layout: Layout, at: Environment) -> Costs:
    """What each exchange of a layout costs."""

    @cache
    def cost(verb: Verb, size: float, axes: tuple[Axis, ...]) -> CollectiveCost:
        return collective_cost(Collective(verb, size, _group(verb, axes, layout, at)), at.network, at.device)

    return lambda exchange: cost(exchange.verb, exchange.bytes, exchange.axes)


def _group(verb: Verb, axes: tuple[Axis, ...], layout: Layout, at: Environment) -> Group:
    per_node = at.network.devices_per_node
    if verb is Verb.SEND:
        return neighbours(axes[0], layout.degrees, per_node)
    return group_along(axes, layout.degrees, per_node)


def _compute_parts(step: PricedStep, times: CallTimes, run: ComposedStep, whole: Program) -> Iterator[Part]:
    """The device time of every kind in every phase, in all micro-batches of the busiest stage."""
    count, start = len(whole.graph.calls), optimizer_start(whole.graph)
    factor = np.full(count, float(whole.micro_batches))
    if run.calls is not None:
        factor[~np.isin(np.arange(count), run.calls)] = 0.0
    priced = call_times(step).device[start:].sum()
    factor[start:] = run.update_share * (times.device[start:].sum() / priced if priced else 0.0)
    of_op = factor[step.priced.listing.calls]
    yield from kind_parts(replace(step.priced, seconds=step.priced.seconds * of_op))


def _waits(run: ComposedStep, traffic: tuple[Traffic, ...], step: PricedStep) -> Iterator[Part]:
    """What the busiest device waits for, and exchanges in the shadow of its computing."""
    communication = sum(each.seconds for each in traffic)
    if communication > 0:
        longest = max(traffic, key=lambda each: each.seconds)
        yield _exchange_part(EXPOSED, run.exposed_seconds, longest)
        hidden = _exchange_part(OVERLAPPED, max(0.0, communication - run.exposed_seconds), longest)
        yield replace(hidden, hidden=True)
    if run.bubble_seconds > 0:
        yield Part(BUBBLE, run.bubble_seconds, "pipeline schedule")
    if run.waiting_seconds > 0:
        yield waiting_part(run.waiting_seconds, step.host)


def _exchange_part(name: str, seconds: float, longest: Traffic) -> Part:
    below = seconds * min(max(1 - longest.p10, 0.0), 1.0)
    return Part(name, seconds, longest.source, below, seconds * max(longest.p90 - 1, 0.0))


def _purpose(exchange: Exchange) -> str:
    """What an exchange is for, whichever block it belongs to."""
    said = None if exchange.also else _PURPOSES.get(exchange.axis)
    if said:
        return f"{exchange.verb} {said}"
    before, gradients, _ = exchange.name.partition("gradients")
    return f"{before}{gradients}".rstrip("0123456789 ")


_PURPOSES = {
    Axis.TENSOR: "of divided layers",
    Axis.CONTEXT: "of divided sequences",
    Axis.EXPERT: "of tokens to experts",
    Axis.SHARD: "of sharded state",
    Axis.PIPELINE: "between stages",
}


def _traffic(program: Program, costs: Costs, layout: Layout, at: Environment) -> Iterator[Traffic]:
    """Exchanges that differ only in their number and size, together."""
    together: dict[tuple[str, Verb, tuple[Axis, ...]], list[Exchange]] = {}
    for exchange in program.exchanges:
        together.setdefault((_purpose(exchange), exchange.verb, exchange.axes), []).append(exchange)
    for (name, verb, axes), listed in together.items():
        largest = costs(max(listed, key=lambda exchange: exchange.bytes))
        times = [times_happening(exchange, program) for exchange in listed]
        members = _group(verb, axes, layout, at).size
        if members == 1:
            continue
        yield Traffic(
            name=name,
            verb=verb,
            axes=tuple(axis for axis in axes if layout.degrees.get(axis, 1) > 1),
            members=members,
            count=sum(times),
            bytes=sum(exchange.bytes * count for exchange, count in zip(listed, times, strict=True)),
            seconds=sum(
                costs(exchange).seconds * count for exchange, count in zip(listed, times, strict=True)
            ),
            algorithm=largest.algorithm,
            tier=largest.tier,
            p10=largest.p10,
            p90=largest.p90,
            source=largest.source,
        )
