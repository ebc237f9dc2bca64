"""Steps in closed form, to compare many layouts and machines before a few are evaluated in full.

**Sketches of layouts.** A model is a sequence of blocks, most of which are identical. A call belongs to the
block of its module (`layers.3`), or to the part before the first or after the last block. Blocks with the
same calls on the same tensor specs are of one kind and have the same costs. The condensed graph holds one
block of each kind: dividing and pricing it takes a fraction of the time that the whole graph takes.

    step  = (m - 1) max(F_s + B_s, send) + Σ_s (F_s + B_s) + 2 Σ sends    1F1B over m micro-batches
            + exchanges between replicas beyond the last backward pass + optimizer
    bytes = state of a stage's blocks + micro-batches in flight · saved activations + other

**Data-parallel steps** on many groups of devices at once. In the last of m micro-batches, gradient bucket i
is ready r_i after its start and takes c_i to reduce in the group. One stream reduces the buckets in order, so

    step = (m - 1) body + max( body, max_i ( r_i + Σ_{j >= i} c_j ) ) + update

and the results agree with the timelines of `step.compose`.

Slow hosts make devices wait in all of them as in `operators.host`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from foretrain.estimates import Estimate, Part, longest, sequence
from foretrain.facts.devices import Device
from foretrain.facts.hardware import Hardware
from foretrain.prediction.collectives.costs import (
    Collective,
    CollectiveCost,
    Verb,
    collective_seconds,
    price_collective,
)
from foretrain.prediction.collectives.network import Network
from foretrain.prediction.cost_models import PricedStep, call_times, kind_parts, waiting_part
from foretrain.prediction.memory.estimate import context_bytes, memory_calibration
from foretrain.prediction.operators.host import waits_per_launch
from foretrain.prediction.operators.pricing import Floats
from foretrain.prediction.spread import traits_of, with_spread
from foretrain.prediction.step.compose import Contention
from foretrain.prediction.step.input_pipeline import InputPipeline
from foretrain.prediction.step.parallel import (
    EXPOSED,
    StepEnvironment,
    contention_of,
    exchange_costs,
    with_launched_exchanges,
)
from foretrain.prediction.stragglers import with_slowest
from foretrain.prediction.strategies.pipeline.cuts import (
    UNLIMITED,
    Chain,
    Cuts,
    StageLink,
    chain_of,
    cut,
    equal_blocks,
    even_bounds,
    merge_positions,
    position_of_every_call,
)
from foretrain.prediction.strategies.pipeline.stages import stage_programs
from foretrain.prediction.strategies.program import (
    BUCKET_BYTES,
    Axis,
    Bucket,
    Program,
    fill_buckets,
    forward_end,
    gradients,
    group_along,
    neighbours,
    optimizer_start,
    unit_of,
)
from foretrain.prediction.strategies.sharded import item_bytes
from foretrain.prediction.strategies.strategy import Layout, divide_step, replication
from foretrain.workloads.executed import ExecutedGraph
from foretrain.workloads.graph import Graph, Phase, Role

BEFORE, AFTER = "(start)", "(end)"
"""Names of the parts before the first and after the last block."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """The blocks of a model in order, the index of the kind of each, and a graph with one block per kind."""

    names: tuple[str, ...]
    kind_of: NDArray[np.int64]
    condensed: ExecutedGraph

    def __len__(self) -> int:
        return len(self.names)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of blocks of each kind."""
        return np.bincount(self.kind_of)

    def kinds_of_calls(self, graph: Graph) -> NDArray[np.int64]:
        """The kind of the block of each call of a condensed graph; -1 for calls of the optimizer."""
        kinds = dict(zip(self.names, self.kind_of.tolist(), strict=True))
        return np.array([-1 if unit is None else kinds[unit] for unit in _units(graph)], np.int64)


def blocks_of(graph: Graph) -> Blocks:
    """The blocks of a graph."""
    unit_of_call = _units(graph)
    names = list(dict.fromkeys(unit for unit in unit_of_call if unit is not None))
    kinds = _kinds(graph, unit_of_call, names)
    kind_of = np.array([kinds[name] for name in names], np.int64)
    first = {kind: names[int(np.argmax(kind_of == kind))] for kind in sorted(set(kinds.values()))}
    kept = set(first.values())
    stage_of_call = np.array([0 if unit in kept else 1 for unit in unit_of_call], np.int64)
    (part,) = stage_programs(Program(graph), stage_of_call, 1)
    return Blocks(tuple(names), kind_of, ExecutedGraph(part.program.graph))


def _units(graph: Graph) -> list[str | None]:
    """The block of each call; None for calls of the optimizer, which belong to all."""
    unit = cache(lambda module: unit_of(f"{module}."))
    forward: list[str | None] = []
    is_after_first = False
    for call in graph.calls:
        if call.phase is not Phase.FORWARD:
            break
        own = unit(call.module)
        is_after_first = is_after_first or bool(own)
        forward.append(own or (AFTER if is_after_first else BEFORE))
    units = list(forward)
    previous = forward[-1] if forward else AFTER
    for call in graph.calls[len(forward) :]:
        if call.phase is Phase.OPTIMIZER:
            units.append(None)
            continue
        own = unit(call.module)
        if not own and call.forward is not None and call.forward < len(forward):
            own = forward[call.forward] or ""
        previous = own or previous
        units.append(own if own else previous)
    return _with_calls_between(units, len(forward))


def _with_calls_between(units: list[str | None], forward: int) -> list[str | None]:
    """Assign calls between two blocks of the forward pass to the first of them."""
    last_block = max((i for i in range(forward) if units[i] not in (BEFORE, AFTER)), default=-1)
    current: str | None = BEFORE
    for index in range(last_block + 1):
        if units[index] == AFTER:
            units[index] = current
        current = units[index]
    return units


def _kinds(graph: Graph, unit_of_call: list[str | None], names: list[str]) -> dict[str, int]:
    """The kind of each block: blocks with the same calls on the same specs are of one kind."""
    made: dict[str, list[Hashable]] = {name: [] for name in names}
    for call, unit in zip(graph.calls, unit_of_call, strict=True):
        if unit is not None:
            made[unit].append((call.name, call.phase, call.inputs, call.outputs))
    numbers: dict[Hashable, int] = {}
    return {name: numbers.setdefault(tuple(made[name]), len(numbers)) for name in names}


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
        """The first block of each stage, and the end: those of a full prediction (`pipeline.cut_program`)."""
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
        cuts = cut(merge_positions(chain, starts), stages, StageLink(), UNLIMITED)
        assert isinstance(cuts, Cuts)
        ends = (*starts, len(self.names))
        return tuple(ends[bound] for bound in cuts.bounds)


@dataclass(frozen=True, slots=True)
class Sketch:
    """Approximate step time and memory of a layout."""

    seconds: float
    bytes: float
    fits: bool


def block_costs(blocks: Blocks, layout: Layout, at: StepEnvironment) -> BlockCosts:
    """The costs of blocks, divided by a layout."""
    program = divide_step(blocks.condensed, layout)
    graph = program.graph
    step = at.model.price(graph, at.device)
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


def sketch(costs: BlockCosts, layout: Layout, micro_batches: int, at: StepEnvironment) -> Sketch:
    """The sketch of a layout from the costs of its blocks."""
    bounds = np.array(costs.bounds(layout.pipeline), np.int64)
    forward, backward, parameters, saved = (
        np.add.reduceat(values, bounds[:-1])
        for values in (costs.forward, costs.backward, costs.parameter_bytes, costs.saved_bytes)
    )
    forward, backward = _with_waits(costs, forward, backward, bounds)
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


def _with_waits(
    costs: BlockCosts, forward: Floats, backward: Floats, bounds: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """Passes with the waits for their launches: each its own in a pipeline, else where the host runs late."""
    launching = [np.add.reduceat(values, bounds[:-1]) for values in costs.launching]
    if len(forward) > 1:  # stages wait for each other
        return np.maximum(forward, launching[0]), np.maximum(backward, launching[1])
    wait = waits_per_launch(launching[0] + launching[1], forward + backward)
    return forward + wait * launching[0], backward + wait * launching[1]


def _sends(costs: BlockCosts, layout: Layout, bounds: NDArray[np.int64], at: StepEnvironment) -> Floats:
    """Seconds of the message between each pair of stages."""
    if layout.pipeline == 1:
        return np.zeros(0)
    pair = neighbours(Axis.PIPELINE, layout.degrees, at.network.devices_per_node)
    sizes = costs.crossing_bytes[bounds[1:-1] - 1]
    return collective_seconds(Verb.SEND, sizes, pair, at.network, at.device)


def exposed_seconds(
    layout: Layout, at: StepEnvironment, sent_bytes: Floats, forward: Floats, backward: Floats, rounds: int
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


Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Reduction:
    """Seconds a group of devices takes to average each gradient bucket."""

    devices: int
    seconds: Floats
    cost: CollectiveCost

    @cached_property
    def after(self) -> Floats:
        """Seconds of each bucket and all later ones."""
        return np.cumsum(self.seconds[::-1])[::-1]


def gradient_buckets(graph: Graph) -> tuple[Bucket, ...]:
    """The buckets of a step's gradients; their sizes are the same at every batch."""
    return tuple(fill_buckets(gradients(graph)))


def reduction(buckets: Sequence[Bucket], hardware: Hardware, network: Network) -> Reduction:
    """The averaging of gradient buckets over all devices of some hardware."""
    group = group_along((Axis.DATA,), {Axis.DATA: hardware.devices}, hardware.devices_per_node)
    sizes = np.array([bucket.bytes for bucket in buckets], float)
    seconds = collective_seconds(Verb.ALL_REDUCE, sizes, group, network, hardware.device)
    largest = Collective(Verb.ALL_REDUCE, float(sizes.max(initial=0.0)), group)
    return Reduction(hardware.devices, seconds, price_collective(largest, network, hardware.device))


@dataclass(frozen=True, eq=False)
class ReplicaStep:
    """One micro-batch and the update of a model on one device, from which all steps of its replicas follow.

    `ready` is the time from the start of a micro-batch to the last gradient of each bucket, on the device and
    on the host.
    """

    step: PricedStep
    device: Device
    forward: float
    backward: float
    update: float
    host: tuple[float, float]
    """Launch time of a micro-batch, and of the update."""
    host_forward: float
    """Launch time of the forward pass of a micro-batch."""
    ready: tuple[Floats, Floats]

    @cached_property
    def contention(self) -> Contention:
        """Of products and collectives for multiprocessors."""
        return contention_of(self.step, self.device)

    @property
    def body(self) -> float:
        """Device time of one micro-batch."""
        return self.forward + self.backward

    def seconds(self, reductions: Sequence[Reduction], micro_batches: Integers) -> Floats:
        """Step times of each group (rows) with each number of micro-batches (columns), without input."""
        wait = self._wait_per_launch(micro_batches)
        body, update = (
            busy + wait * launching
            for busy, launching in zip((self.body, self.update), self.host, strict=True)
        )
        after = np.array([each.after for each in reductions])
        ready = self.ready[0][:, None] + wait * self.ready[1][:, None]
        ends = np.maximum(body, (after[:, :, None] + ready).max(axis=1, initial=0.0))
        seconds = np.asarray((micro_batches - 1) * body + ends + update, float)
        return seconds + self._lost_seconds(reductions, ends - body, micro_batches)

    def _lost_seconds(self, reductions: Sequence[Reduction], exposed: Floats, rounds: Integers) -> Floats:
        """What reductions beside products cost on multiprocessors that both need, as `step.compose` has it.

        A device that waits for launches has that time to spare.
        """
        lost = np.zeros_like(exposed)
        if not self.contention.product_share:
            return lost
        spare = np.maximum(0.0, rounds * self.host[0] + self.host[1] - rounds * self.body - self.update)
        for row, each in enumerate(reductions):
            whole, count = float(each.seconds.sum()), len(each.seconds)
            for column, waited in enumerate(exposed[row].tolist()):
                lost[row, column] = self.contention.lost(whole - waited, whole / count if count else 0.0)
        return np.asarray(np.maximum(0.0, lost - spare), float)

    def forward_seconds(self, micro_batches: int) -> float:
        """Forward passes of a step, including their waits for launches."""
        wait = float(self._wait_per_launch(np.array([micro_batches]))[0])
        return micro_batches * (self.forward + wait * self.host_forward)

    def _wait_per_launch(self, micro_batches: Integers) -> Floats:
        """Seconds the device waits per second of launches, for each number of micro-batches."""
        launching = micro_batches * self.host[0] + self.host[1]
        return waits_per_launch(launching, micro_batches * self.body + self.update)

    def estimate(
        self, group: Reduction, micro_batches: int, loading: InputPipeline | None, jitter: float = 0.0
    ) -> Estimate:
        """The step with its parts, including the wait for the slowest device and for the input."""
        seconds = float(self.seconds([group], np.array([micro_batches]))[0, 0])
        computing = micro_batches * self.body + self.update
        waiting = max(0.0, micro_batches * self.host[0] + self.host[1] - computing)
        exposed = max(0.0, seconds - computing - waiting)
        parts = [*self._computing_parts(micro_batches)]
        if exposed > 0:
            cost = group.cost
            parts.append(Part.within(EXPOSED, exposed, cost.source, cost.p10, cost.p90))
        if waiting > 0:
            parts.append(waiting_part(waiting, self.step.host))
        plain = Estimate("s", tuple(parts))
        share = waiting / plain.value if plain.value else 0.0
        traits = traits_of(self.step.graph, self.step, self.device, group.devices, share)
        total = with_slowest(with_spread(plain, self.step, traits, self.device), group.devices, jitter)
        if loading is None or not loading.estimate.parts:
            return total
        return longest(total, loading.estimate) if loading.overlaps else sequence((total, loading.estimate))

    def _computing_parts(self, micro_batches: int) -> Sequence[Part]:
        """Device time by kind and phase: the update once, everything else in every micro-batch."""
        once = [part for part in self._parts if part.name.startswith(Phase.OPTIMIZER)]
        each = [part for part in self._parts if not part.name.startswith(Phase.OPTIMIZER)]
        return [*(each if micro_batches == 1 else (part.scale(micro_batches) for part in each)), *once]

    @cached_property
    def _parts(self) -> tuple[Part, ...]:
        return tuple(kind_parts(self.step.priced))


def replica_step(step: PricedStep, device: Device, buckets: Sequence[Bucket]) -> ReplicaStep:
    """The totals of a priced step that its replicas share."""
    times, graph = call_times(step), step.graph
    passing, updating = forward_end(graph), optimizer_start(graph)
    ready = np.array([bucket.ready + 1 for bucket in buckets], np.int64)
    busy, launched = (np.append(0.0, np.cumsum(column)) for column in (times.device, times.host))
    return ReplicaStep(
        step=step,
        device=device,
        forward=float(busy[passing]),
        backward=float(busy[updating] - busy[passing]),
        update=float(busy[-1] - busy[updating]),
        host=(float(launched[updating]), float(launched[-1] - launched[updating])),
        host_forward=float(launched[passing]),
        ready=(busy[ready], launched[ready]),
    )
