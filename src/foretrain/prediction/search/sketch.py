"""Sketch of a layout: approximate time and memory from one block of each kind, to compare many layouts.

    step  = (m - 1) max(F_s + B_s, send) + Σ_s (F_s + B_s) + 2 Σ sends    1F1B over m micro-batches
            + exchanges between replicas beyond the last backward pass + optimizer
    bytes = state of a stage's blocks + micro-batches in flight · saved activations + other

The search evaluates the fastest sketches in full.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from foretrain.prediction.collectives._base import Verb
from foretrain.prediction.collectives.catalogue import collective_seconds
from foretrain.prediction.cost_models.priced_step import call_times
from foretrain.prediction.memory.calibration import memory_calibration
from foretrain.prediction.memory.estimate import context_bytes
from foretrain.prediction.operators.listing import Floats
from foretrain.prediction.search.blocks import Blocks
from foretrain.prediction.step.parallel import Environment, exchange_costs, with_launched_exchanges
from foretrain.prediction.strategies.catalogue import divided, replication
from foretrain.prediction.strategies.gradients import BUCKET_BYTES, optimizer_start
from foretrain.prediction.strategies.layout import Layout
from foretrain.prediction.strategies.pipeline.cuts import (
    UNLIMITED,
    Chain,
    Cuts,
    Link,
    chain_of,
    cut,
    equal_blocks,
    even_bounds,
    merged,
    position_of_every_call,
)
from foretrain.prediction.strategies.program import Axis, group_along, neighbours
from foretrain.prediction.strategies.sharded import item_bytes
from foretrain.workloads.graph import Graph, Phase, Role

_KEPT = (Role.ACTIVATION, Role.TEMPORARY)


@dataclass(frozen=True, eq=False)
class BlockCosts:
    """Costs of the blocks of a divided model for one micro-batch.

    `names` and arrays have one entry per block, in order. `launching` is host time, forward and backward. The
    ratios are bytes of gradients, optimizer state and cast weights per byte of parameters. `sent_share` is
    the size of the transmitted type over that of the parameter. `other_bytes` is all memory besides these and
    saved activations. `cached_bounds` holds the results of `bounds`.
    """

    names: tuple[str, ...]
    forward: Floats
    backward: Floats
    launching: tuple[Floats, Floats]
    parameter_bytes: Floats
    saved_bytes: Floats
    crossing_bytes: Floats
    optimizer_seconds_per_byte: float
    gradient_ratio: float
    state_ratio: float
    cast_ratio: float
    sent_share: float
    other_bytes: float
    cached_bounds: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def bounds(self, stages: int) -> tuple[int, ...]:
        """The first block of each stage, and the end: those of a full prediction (`pipeline.pipelined`)."""
        if stages not in self.cached_bounds:
            blocks = equal_blocks(self.names, self.parameter_bytes)
            even = even_bounds(blocks, len(self.names), stages)
            self.cached_bounds[stages] = even or self._balanced_bounds(stages, blocks)
        return self.cached_bounds[stages]

    def _balanced_bounds(self, stages: int, blocks: tuple[int, ...]) -> tuple[int, ...]:
        starts = (0, *blocks[1:]) if len(blocks) >= stages else tuple(range(len(self.names)))
        chain = Chain(
            self.forward,
            self.backward,
            self.parameter_bytes,
            self.saved_bytes,
            self.crossing_bytes[:-1],
            names=self.names,
        )
        cuts = cut(merged(chain, starts), stages, Link(), UNLIMITED)
        assert isinstance(cuts, Cuts)
        ends = (*starts, len(self.names))
        return tuple(ends[bound] for bound in cuts.bounds)


@dataclass(frozen=True, slots=True)
class Sketch:
    """Approximate step time and memory of a layout."""

    seconds: float
    bytes: float
    fits: bool


def block_costs(blocks: Blocks, graph: Graph, layout: Layout, at: Environment) -> BlockCosts:
    """The costs of blocks whose condensed graph is `graph`, divided by a layout."""
    program = divided(graph, layout)
    graph = program.graph
    step = at.model.priced(graph, at.device)
    times = with_launched_exchanges(call_times(step), program, step)
    chain = chain_of(graph, times.device.tolist())
    position = position_of_every_call(graph)
    kinds, kind_of_call = len(blocks.counts), blocks.kinds_of_calls(graph)
    kind_of_position = np.zeros(len(chain), int)
    has_position = position >= 0
    kind_of_position[position[has_position]] = kind_of_call[has_position]

    def of_kind(values: Floats) -> Floats:
        return np.bincount(kind_of_position, values, kinds).astype(float)

    forward, backward = of_kind(chain.forward_seconds), of_kind(chain.backward_seconds)
    hosts = chain_of(graph, times.host.tolist())
    launching = of_kind(hosts.forward_seconds), of_kind(hosts.backward_seconds)
    costs = exchange_costs(layout, at)
    for exchange in program.exchanges:
        call = max(exchange.after, 0)
        into = forward if graph.calls[call].phase is Phase.FORWARD else backward
        into[max(0, kind_of_call[call])] += costs(exchange).seconds
    last = np.zeros(kinds, int)  # blocks that share a position cannot be separated
    np.maximum.at(last, kind_of_call[has_position], position[has_position])
    crossing = np.append(chain.crossing_bytes, 0.0)[last]
    sizes = _sizes(graph)
    parameters, saved = of_kind(chain.parameter_bytes), _saved_bytes(graph, kind_of_call, kinds)
    updating = float(times.device[optimizer_start(graph) :].sum())
    whole = max(1.0, float(sizes[Role.PARAMETER]))
    return BlockCosts(
        names=blocks.names,
        forward=forward[blocks.kind_of],
        backward=backward[blocks.kind_of],
        launching=(launching[0][blocks.kind_of], launching[1][blocks.kind_of]),
        parameter_bytes=parameters[blocks.kind_of],
        saved_bytes=saved[blocks.kind_of],
        crossing_bytes=crossing[blocks.kind_of],
        optimizer_seconds_per_byte=updating / whole,
        gradient_ratio=sizes[Role.GRADIENT] / whole,
        state_ratio=sizes[Role.OPTIMIZER_STATE] / whole,
        cast_ratio=sizes[Role.CAST_WEIGHT] / whole,
        sent_share=(item_bytes(graph, None) or 4) / 4,
        other_bytes=context_bytes(graph, at.device, memory_calibration()) + _passing_bytes(graph),
    )


def _sizes(graph: Graph) -> dict[Role, float]:
    sizes = dict.fromkeys(Role, 0.0)
    for buffer in graph.buffers:
        sizes[buffer.role] += graph.specs[buffer.spec].bytes
    return sizes


def _saved_bytes(graph: Graph, kind_of_call: NDArray[np.int64], kinds: int) -> Floats:
    """Activations saved for the backward pass, by the kind of block that reads them.

    They are attributed to the reader, since the condensed graph may lack the block that wrote them.
    """
    forward = sum(call.phase is Phase.FORWARD for call in graph.calls)
    kept = np.zeros(kinds)
    seen: set[int] = set()
    for call, kind in zip(graph.calls[forward:], kind_of_call[forward:].tolist(), strict=True):
        if call.phase is not Phase.BACKWARD:
            break
        for index in call.reads:
            buffer = graph.buffers[index]
            if index not in seen and 0 <= buffer.born < forward and buffer.role in _KEPT:
                seen.add(index)
                kept[kind] += graph.specs[buffer.spec].bytes
    return kept


def _passing_bytes(graph: Graph) -> float:
    """Peak bytes of temporaries and recomputed activations before the optimizer."""
    end = optimizer_start(graph)
    forward = sum(call.phase is Phase.FORWARD for call in graph.calls)
    change = np.zeros(end + 2)
    for buffer in graph.buffers:
        is_recomputed = buffer.role is Role.ACTIVATION and buffer.born >= forward
        if (buffer.role is Role.TEMPORARY or is_recomputed) and buffer.born < end:
            size = graph.specs[buffer.spec].bytes
            change[buffer.born + 1] += size
            change[min(buffer.dies, end - 1) + 2] -= size
    return float(np.cumsum(change).max(initial=0.0))


def sketch(costs: BlockCosts, layout: Layout, micro_batches: int, at: Environment) -> Sketch:
    """The sketch of a layout from the costs of its blocks."""
    bounds = np.array(costs.bounds(layout.pipeline), np.int64)
    forward, backward, parameters, saved = (
        np.add.reduceat(values, bounds[:-1])
        for values in (costs.forward, costs.backward, costs.parameter_bytes, costs.saved_bytes)
    )
    forward, backward = _at_least_launches(costs, forward, backward, bounds)
    passing = forward + backward
    sends = _sends(costs, layout, bounds, at)
    pace = max(float(passing.max()), float(sends.max(initial=0.0)))
    steady = (micro_batches - 1) * pace + passing.sum() + 2 * sends.sum()
    sent = parameters * (costs.sent_share if layout.zero_stage else 1.0)
    after = exposed_seconds(layout, at, sent, forward, backward, micro_batches)
    updating = parameters * costs.optimizer_seconds_per_byte / replication(layout).shards(layout).optimizer
    seconds = float(steady + (after + updating).max())
    needed = _bytes(costs, layout, parameters, saved, micro_batches)
    return Sketch(seconds, needed, needed <= at.device.memory_bytes * memory_calibration().usable_share)


def _at_least_launches(
    costs: BlockCosts, forward: Floats, backward: Floats, bounds: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """Passes that take at least their launches; without a pipeline, both passes together."""
    launching = [np.add.reduceat(values, bounds[:-1]) for values in costs.launching]
    if len(forward) > 1:
        return np.maximum(forward, launching[0]), np.maximum(backward, launching[1])
    late = max(1.0, float((launching[0] + launching[1])[0] / max((forward + backward)[0], 1e-12)))
    return forward * late, backward * late


def _sends(costs: BlockCosts, layout: Layout, bounds: NDArray[np.int64], at: Environment) -> Floats:
    """Seconds of the message between each pair of stages."""
    if layout.pipeline == 1:
        return np.zeros(0)
    pair = neighbours(Axis.PIPELINE, layout.degrees, at.network.devices_per_node)
    sizes = costs.crossing_bytes[bounds[1:-1] - 1]
    return collective_seconds(Verb.SEND, sizes, pair, at.network, at.device)


def exposed_seconds(
    layout: Layout, at: Environment, sent_bytes: Floats, forward: Floats, backward: Floats, rounds: int
) -> Floats:
    """Seconds that exchanges between replicas add to the step of each stage, in closed form."""
    if layout.replicas * layout.context == 1:
        return np.zeros(len(sent_bytes))

    def exchange(verb: Verb, sizes: Floats, axes: tuple[Axis, ...]) -> Floats:
        group = group_along(axes, layout.degrees, at.network.devices_per_node)
        count = np.maximum(1.0, sizes / BUCKET_BYTES)
        return count * collective_seconds(verb, sizes / count, group, at.network, at.device)

    strategy = replication(layout)
    return strategy.exposed_seconds(layout, sent_bytes, forward, backward, rounds, exchange)


def _bytes(costs: BlockCosts, layout: Layout, parameters: Floats, saved: Floats, micro_batches: int) -> float:
    """Memory of the fullest stage."""
    shards = replication(layout).shards(layout)
    state = parameters * (1 / shards.parameters + costs.state_ratio / shards.optimizer)
    gradients = parameters * costs.gradient_ratio / shards.gradients
    if shards.parameters > 1 or layout.zero_stage == 3:
        state = state + 2 * costs.parameter_bytes.max() * costs.sent_share
    else:
        state = state + parameters * costs.cast_ratio
    if layout.zero_stage < 2 and layout.replicas > 1:
        state = state + parameters * costs.gradient_ratio  # buckets
    kept = np.minimum(micro_batches, np.arange(len(parameters), 0, -1)) * saved
    # with one micro-batch, gradients replace activations; with several, they are kept
    passing = kept + gradients if micro_batches > 1 else np.maximum(kept, gradients)
    return float((state + passing).max() + costs.other_bytes)
