"""A training step on any number of devices: program, time and parts.

1. Tensor, context and expert parallelism divide the layers of the graph.
2. The cost model prices the calls.
3. A pipeline cuts the calls into stages.
4. Replication adds its exchanges to each stage.
5. Streams and schedule compose the step.

The parts are those of the busiest stage and its waits for exchanges, other stages and launches. On one device
every degree is 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache

import numpy as np

from foretrain.errors import InvalidRequest
from foretrain.estimates import Estimate, Part
from foretrain.facts.devices import Device
from foretrain.prediction.collectives.costs import Collective, CollectiveCost, Group, Verb, price_collective
from foretrain.prediction.collectives.network import Network
from foretrain.prediction.cost_models import (
    CallTimes,
    CostModel,
    PricedStep,
    call_times,
    computing_parts,
    exchange_launch_seconds,
    launched_phases,
    modelled_share,
)
from foretrain.prediction.operators.matrix import has_static_products
from foretrain.prediction.step.compose import (
    NO_CONTENTION,
    ComposedStep,
    Contention,
    compose,
    exchange_count,
)
from foretrain.prediction.step.pipeline import compose_pipeline
from foretrain.prediction.strategies.pipeline.pipeline import MemoryBudget, Pipeline, StageLayers
from foretrain.prediction.strategies.program import (
    Axis,
    Exchange,
    Program,
    When,
    group_along,
    neighbours,
    optimizer_start,
)
from foretrain.prediction.strategies.sharded import with_sharded_optimizer
from foretrain.prediction.strategies.strategy import Layout, divide_step, replication
from foretrain.workloads.executed import ExecutedGraph
from foretrain.workloads.graph import Graph, once_per_graph
from foretrain.workloads.ops import Kind

EXPOSED = "exposed communication"
OVERLAPPED = "overlapped communication"
BUBBLE = "pipeline bubble"
_PROGRAMS_KEPT = 8
"""Divided steps that stay in memory: advice and curves compose the same one many times."""


@dataclass(frozen=True)
class StepEnvironment:
    """The device, the network and the cost model that layouts are compared on."""

    device: Device
    network: Network
    model: CostModel


@dataclass(frozen=True, slots=True)
class Traffic:
    """The exchanges of one device in a step that have the same purpose, verb and axes."""

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
class ParallelStep:
    """A step on the devices of a layout: time with parts, composition and traffic.

    `includes_waits`: the time is that of measured steps, in which fast devices already waited for slow ones.
    """

    layout: Layout
    estimate: Estimate
    run: ComposedStep
    traffic: tuple[Traffic, ...]
    priced: PricedStep
    notes: tuple[str, ...] = ()
    staleness: float | None = None
    includes_waits: bool = False

    @property
    def unmodelled(self) -> tuple[str, ...]:
        """Operators without a rule."""
        return () if self.priced.is_whole else self.priced.priced.listing.unknown_names

    @property
    def modelled_share(self) -> float:
        """Share of the device's time that a model predicts."""
        return 1.0 if self.priced.is_whole else modelled_share(self.priced.priced)

    @property
    def seconds(self) -> float:
        """The median."""
        return self.estimate.value

    @property
    def communication_seconds(self) -> float:
        """Time of all exchanges of a step, exposed or not."""
        return sum(each.seconds for each in self.traffic)

    @property
    def coordination_ratio(self) -> float:
        """Time of exchanges over time of computing."""
        computing = self.run.computing_seconds
        return self.communication_seconds / computing if computing else 0.0

    @property
    def moved_bytes(self) -> float:
        """Bytes of all messages of a step."""
        return sum(each.bytes for each in self.traffic)


def predict_step(
    executed: ExecutedGraph, layout: Layout, micro_batches: int, at: StepEnvironment
) -> ParallelStep:
    """The step of `executed` (one micro-batch of one replica) on the devices of a layout."""
    whole = _divide(executed, layout, micro_batches, at)
    step = at.model.price(whole.graph, at.device)
    times = with_launched_exchanges(call_times(step), whole, step)
    times = replication(layout).call_times(times, whole, layout)
    return compose_step(whole, step, _with_sharded_update(times, whole, layout, at), layout, at)


def replicated_program(
    executed: ExecutedGraph, layout: Layout, micro_batches: int, at: StepEnvironment
) -> Program:
    """The program of the only stage of a layout, as `predict_step` composes it: what memory depends on."""
    return replication(layout).replicate(_divide(executed, layout, micro_batches, at), layout)


def _divide(executed: ExecutedGraph, layout: Layout, micro_batches: int, at: StepEnvironment) -> Program:
    if layout.devices > 1 and not at.model.knows_operators:
        raise InvalidRequest(
            f"this cost model predicts whole steps on one device only, not on {layout.devices} devices; use "
            "cost_model foretrain, roofline or per-layer, or `foretrain scaling` on timings of several "
            "placements"
        )
    return replace(_divide_once(executed, _model_parallel(layout)), micro_batches=micro_batches)


@lru_cache(maxsize=_PROGRAMS_KEPT)
def _divide_once(executed: ExecutedGraph, layout: Layout) -> Program:
    return divide_step(executed, layout)


def _model_parallel(layout: Layout) -> Layout:
    """What of a layout divides layers: layouts that differ in stages and replicas share the same program."""
    return replace(layout, name="", pipeline=1, data=1, shard=1, zero_stage=0)


def with_launched_exchanges(times: CallTimes, program: Program, step: PricedStep) -> CallTimes:
    """Call times with the host time of starting the exchanges of divided layers, after their calls."""
    host = times.host.copy()
    started = [max(0, each.after) for each in program.exchanges if each.when is When.EVERY]
    np.add.at(host, started, exchange_launch_seconds(step))
    return CallTimes(times.device, host)


@once_per_graph
def _update_of(graph: Graph) -> Graph:
    """The calls of the optimizer alone."""
    return replace(graph, calls=graph.calls[optimizer_start(graph) :])


@once_per_graph
def _updates_of_shares(graph: Graph) -> dict[int, Graph]:
    """The optimizer's calls by the number of devices that share them; kept, since each is priced once."""
    del graph
    return {}


def _with_sharded_update(
    times: CallTimes, program: Program, layout: Layout, at: StepEnvironment
) -> CallTimes:
    """Call times with an optimizer that updates only this device's share of the parameters."""
    shards = replication(layout).shards(layout).optimizer
    start, update = optimizer_start(program.graph), _update_of(program.graph)
    if shards == 1 or not update.calls:
        return times
    known = _updates_of_shares(update)
    if shards not in known:
        known[shards] = with_sharded_optimizer(update, shards)
    # Priced as kernels on fewer elements, not as a share of the time: small ones are bound by their start.
    share = call_times(at.model.price(known[shards], at.device))
    return CallTimes(np.append(times.device[:start], share.device), np.append(times.host[:start], share.host))


def compose_step(
    whole: Program,
    step: PricedStep,
    times: CallTimes,
    layout: Layout,
    at: StepEnvironment,
    pipeline: Pipeline | None = None,
) -> ParallelStep:
    """The step of a divided program from the times of its calls; `pipeline`, if given, holds its stages."""
    costs, strategy = exchange_costs(layout, at), replication(layout)

    def seconds(exchange: Exchange) -> float:
        return costs(exchange).seconds + exchange.host_seconds

    if layout.pipeline == 1:
        run = compose(strategy.replicate(whole, layout), times, seconds, contention_of(step, at.device))
        # On one device the wait before every operator is known; else waits are in proportion to launches.
        if layout.devices == 1 and whole.micro_batches == 1:
            run = replace(run, phases=launched_phases(step))
    else:
        budget = MemoryBudget(at.device.memory_bytes, layout.zero_stage, strategy.shards(layout).optimizer)
        shape = (layout.schedule, layout.pipeline, layout.chunks)
        run = compose_pipeline(
            whole,
            times,
            shape,
            lambda part: strategy.replicate(part, layout),
            seconds,
            budget,
            pipeline,
            StageLayers(layout.stage_layers, layout.balances_stages),
            contention_of(step, at.device),
        )
    traffic = tuple(_traffic(run.stages[run.busiest], costs, layout, at))
    return ParallelStep(
        layout=layout,
        estimate=Estimate("s", (*_own_parts(step, times, run, whole), *_waits(run, traffic))),
        run=run,
        traffic=traffic,
        priced=step,
        notes=whole.notes,
    )


def contention_of(step: PricedStep, device: Device) -> Contention:
    """The contention of products and collectives for the multiprocessors of a device."""
    if not has_static_products(device) or step.is_whole:
        return NO_CONTENTION
    listing = step.priced.listing
    body = np.asarray(listing.calls) < optimizer_start(step.graph)
    products = body & (listing.per_op(listing.works.where(_PRODUCTS).astype(float)) > 0)
    if not products.any():
        return NO_CONTENTION
    seconds = float(step.priced.seconds[products].sum())
    return Contention(seconds / float(step.priced.seconds[body].sum()), seconds / int(products.sum()))


_PRODUCTS = frozenset({Kind.LINEAR, Kind.MATMUL})


Costs = Callable[[Exchange], CollectiveCost]


def exchange_costs(layout: Layout, at: StepEnvironment) -> Costs:
    """A function that prices the exchanges of a layout; each cost is computed once."""

    @cache
    def cost(verb: Verb, size: float, axes: tuple[Axis, ...]) -> CollectiveCost:
        return price_collective(Collective(verb, size, _group(verb, axes, layout, at)), at.network, at.device)

    return lambda exchange: cost(exchange.verb, exchange.bytes, exchange.axes)


def _group(verb: Verb, axes: tuple[Axis, ...], layout: Layout, at: StepEnvironment) -> Group:
    per_node = at.network.devices_per_node
    if verb is Verb.SEND:
        return neighbours(axes[0], layout.degrees, per_node)
    return group_along(axes, layout.degrees, per_node)


def _own_parts(step: PricedStep, times: CallTimes, run: ComposedStep, whole: Program) -> tuple[Part, ...]:
    """Computing of the busiest device by kind and phase in all micro-batches, and its waits for launches."""
    count, start = len(whole.graph.calls), optimizer_start(whole.graph)
    factor = np.full(count, float(whole.micro_batches))
    if run.calls is not None:
        factor[~np.isin(np.arange(count), run.calls)] = 0.0
    priced = call_times(step).device[start:].sum()
    # `times` may hold the update of a share of the parameters, `priced` is that of all of them.
    factor[start:] = run.update_share * (times.device[start:].sum() / priced if priced else 0.0)
    of_op = factor[step.priced.listing.calls]
    return computing_parts(step, step.priced.seconds * of_op, run.waiting_seconds)


def _waits(run: ComposedStep, traffic: tuple[Traffic, ...]) -> Iterator[Part]:
    """Waits of the busiest device for others, and exchanges that overlap its computing."""
    communication = sum(each.seconds for each in traffic)
    if communication > 0:
        longest = max(traffic, key=lambda each: each.seconds)
        trust = longest.source, longest.p10, longest.p90
        yield Part.within(EXPOSED, run.exposed_seconds, *trust)
        hidden = Part.within(OVERLAPPED, max(0.0, communication - run.exposed_seconds), *trust)
        yield replace(hidden, hidden=True)
    if run.bubble_seconds > 0:
        yield Part(BUBBLE, run.bubble_seconds, "pipeline schedule")


_PURPOSES = {
    Axis.TENSOR: "of divided layers",
    Axis.CONTEXT: "of divided sequences",
    Axis.EXPERT: "of tokens to experts",
    Axis.SHARD: "of sharded state",
    Axis.PIPELINE: "between stages",
}


def _purpose(exchange: Exchange) -> str:
    """The purpose of an exchange, without the block it belongs to."""
    is_averaging = bool(exchange.also) and exchange.axis is not Axis.SHARD
    purpose = None if is_averaging else _PURPOSES.get(exchange.axis)
    if purpose:
        return f"{exchange.verb} {purpose}"
    before, gradients, _ = exchange.name.partition("gradients")
    return f"{before}{gradients}".rstrip("0123456789 ")


def _traffic(program: Program, costs: Costs, layout: Layout, at: StepEnvironment) -> Iterator[Traffic]:
    """Exchanges grouped by purpose, verb and axes."""
    grouped: dict[tuple[str, Verb, tuple[Axis, ...]], list[Exchange]] = {}
    for exchange in program.exchanges:
        grouped.setdefault((_purpose(exchange), exchange.verb, exchange.axes), []).append(exchange)
    for (name, verb, axes), listed in grouped.items():
        largest = costs(max(listed, key=lambda exchange: exchange.bytes))
        counts = [exchange_count(exchange, program) for exchange in listed]
        members = _group(verb, axes, layout, at).size
        if members == 1:
            continue
        yield Traffic(
            name=name,
            verb=verb,
            axes=tuple(axis for axis in axes if layout.degrees.get(axis, 1) > 1),
            members=members,
            count=sum(counts),
            bytes=sum(each.bytes * count for each, count in zip(listed, counts, strict=True)),
            seconds=sum(costs(each).seconds * count for each, count in zip(listed, counts, strict=True)),
            algorithm=largest.algorithm,
            tier=largest.tier,
            p10=largest.p10,
            p90=largest.p90,
            source=largest.source,
        )
