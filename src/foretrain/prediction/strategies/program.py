"""The program of one device in a training step: its calls and its exchanges with other devices.

A `Program` starts as the whole step on one device. A strategy rewrites it into that of one device among many:
it divides dimensions of the graph's tensors and adds exchanges between calls. A strategy of degree 1 returns
the program unchanged; one of degree d leaves each of d devices its share of the work.

Devices are numbered node by node, with the first axis of `Axis` varying fastest: tensor-parallel neighbours
are adjacent, pipeline stages farthest apart. Along an axis of stride s (the product of the degrees before
it), a node of N devices holds min(degree, N / s) members of a group, at least one.

Devices along the context, expert, shard and data axes have gradients of the same parameters, which are
reduced in buckets when they are ready. Experts are the exception: along the expert axis every device has
different experts (see `expert`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from foretrain.errors import InvalidRequest
from foretrain.prediction.collectives.costs import Group, Verb
from foretrain.workloads.depth import (
    Lines,
    NotDerivable,
    Numbered,
    deepen,
    extend_beside,
    kind_of_call,
    names_in,
    split_name,
)
from foretrain.workloads.executed import fuse_executed, fuses
from foretrain.workloads.graph import Graph, Phase, Role, once_per_graph


class Axis(StrEnum):
    """An axis along which a step is parallelised, in the order in which devices are numbered."""

    TENSOR = "tp"
    CONTEXT = "cp"
    EXPERT = "ep"
    SHARD = "fsdp"
    DATA = "dp"
    PIPELINE = "pp"


REPLICAS = (Axis.EXPERT, Axis.SHARD, Axis.DATA)
"""The axes along which devices have different samples."""


class When(StrEnum):
    """The micro-batches of a step in which an exchange takes place."""

    EVERY = "every micro-batch"
    FIRST = "the first micro-batch"
    LAST = "the last micro-batch"


class Exchange(NamedTuple):
    """A collective and its position in the step.

    It starts when call `after` has ended (-1: at the start of the step). Call `before` waits for it (the
    number of calls: only the end of the step does). `bytes` is the whole message of the group along `axis`
    and the axes in `also`: the full tensor, even if each member holds only a part of it. `host_seconds` is
    host time that blocks the step. Calls in `readers` wait for it too, wherever fusion moves them.
    `by_copies`: copy engines send it piece by piece, so that it holds no multiprocessors.
    """

    name: str
    verb: Verb
    bytes: float
    axis: Axis
    after: int
    before: int
    when: When = When.EVERY
    also: tuple[Axis, ...] = ()
    host_seconds: float = 0.0
    readers: tuple[int, ...] = ()
    by_copies: bool = False

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes its group spans."""
        return (self.axis, *self.also)


@dataclass(frozen=True)
class Program:
    """One device's part of a training step, for one micro-batch.

    `graph` is the step with divided dimensions; `degrees` is the number of devices along each axis (1 for an
    axis that is not listed). `zero_stage` 1 shards optimizer state over the shard axis, 2 also gradients, 3
    also parameters. Along the expert axis, devices have different samples. One interpreter launches the
    forward passes of `forward_launchers` devices, one after the other.
    """

    graph: Graph
    exchanges: tuple[Exchange, ...] = ()
    degrees: Mapping[Axis, int] = field(default_factory=dict)
    zero_stage: int = 0
    micro_batches: int = 1
    forward_launchers: int = 1
    notes: tuple[str, ...] = ()

    def degree(self, axis: Axis) -> int:
        """Number of devices along an axis."""
        return self.degrees.get(axis, 1)

    @property
    def devices(self) -> int:
        """Number of devices."""
        return math.prod(self.degrees.values())

    @property
    def replicas(self) -> int:
        """Number of devices, or groups of devices, with their own samples."""
        return math.prod(self.degree(axis) for axis in REPLICAS)

    def with_axis(self, axis: Axis, degree: int, *added: Exchange, graph: Graph | None = None) -> Program:
        """The program parallelised along one more axis, with more exchanges and optionally another graph."""
        return replace(
            self,
            graph=self.graph if graph is None else graph,
            exchanges=(*self.exchanges, *added),
            degrees={**self.degrees, axis: degree},
        )


def compile_program(program: Program) -> Program:
    """The program with the fused kernels of its compiler or framework; no kernel spans an exchange."""
    if not fuses(program.graph):
        return program
    result = fuse_executed(program.graph, [(each.after, each.before) for each in program.exchanges])
    exchanges = tuple(
        exchange._replace(
            after=result.place[exchange.after] if exchange.after >= 0 else exchange.after,
            before=min(result.place[reader] for reader in (exchange.before, *exchange.readers)),
            readers=(),
        )
        for exchange in program.exchanges
    )
    return replace(program, graph=result.graph, exchanges=exchanges)


def deepen_program(low: Program, high: Program, extra: int) -> Program:
    """The program with `extra` more equal blocks than `high`, which has one more than `low`."""
    if replace(low, graph=high.graph, exchanges=()) != replace(high, exchanges=()):
        raise NotDerivable("the step is divided differently at another depth")
    rows = _exchange_rows(low), _exchange_rows(high)

    def make(row: Numbered, lines: Lines) -> list[Exchange]:
        exchange, template, number = row.same
        names, calls = names_in(template, lines, row.calls + 1), lines.part(0, row.calls)
        return [
            exchange._replace(
                name=name, after=after, before=before, readers=tuple(readers), bytes=number(size)
            )
            for name, (after, before, *readers), (size,) in zip(
                names, calls, lines.part(row.calls, row.calls + 1), strict=True
            )
        ]

    exchanges = extend_beside(low.graph, high.graph, rows, extra, make)
    return replace(high, graph=deepen(low.graph, high.graph, extra), exchanges=tuple(exchanges))


def _exchange_rows(program: Program) -> list[Numbered]:
    """Exchanges, aligned by the calls they follow. Some send a part of every block: their bytes grow."""
    rows = []
    for each in program.exchanges:
        if each.bytes != int(each.bytes):
            raise NotDerivable(f"{each.name} sends {each.bytes} bytes")
        template, numbers = split_name(each.name)
        same = (each._replace(name="", after=0, before=0, readers=(), bytes=0.0), template, type(each.bytes))
        kind = (same, kind_of_call(program.graph.calls[each.after]) if each.after >= 0 else None)
        calls = (each.after, each.before, *each.readers)
        rows.append(Numbered(kind, same, (*calls, int(each.bytes), *numbers), len(calls)))
    return rows


def group_along(axes: tuple[Axis, ...], degrees: Mapping[Axis, int], devices_per_node: int) -> Group:
    """The group of one device along some axes."""
    size = members = 1
    for axis in axes:
        degree = degrees.get(axis, 1)
        size *= degree
        members *= min(degree, max(1, devices_per_node // stride(axis, degrees)))
    on_node = min(devices_per_node, math.prod(degrees.values()))
    return Group(size, min(members, size), max(1, on_node // members))


def stride(axis: Axis, degrees: Mapping[Axis, int]) -> int:
    """Difference of the numbers of two neighbours along an axis."""
    before = list(Axis)[: list(Axis).index(axis)]
    return math.prod(degrees.get(other, 1) for other in before)


def neighbours(axis: Axis, degrees: Mapping[Axis, int], devices_per_node: int) -> Group:
    """The pair of two neighbours along an axis, such as consecutive pipeline stages."""
    distance = stride(axis, degrees)
    is_same_node = distance < devices_per_node
    on_node = min(devices_per_node, math.prod(degrees.values()))
    return Group(2, 2 if is_same_node else 1, min(distance, on_node))


ROOT = ""
"""The unit of parameters outside all repeated blocks; it stays gathered for the whole step."""


def unit_of(parameter: str) -> str:
    """The block a parameter belongs to: its path up to the first number, `layers.3` of `layers.3.mlp.up`."""
    components = parameter.split(".")
    for position, component in enumerate(components[:-1]):
        if component.isdigit():
            return ".".join(components[: position + 1])
    return ROOT


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """Options of a training step that determine its memory.

    `data_parallel` is the number of replicas; `zero_stage` 1 shards optimizer state over them, 2 also
    gradients, 3 also parameters. `keep_gradients` zeroes gradients in place (PyTorch before 2.0) instead of
    freeing them. `tune_convolutions` is `cudnn.benchmark`. `prefetching_loaders` copy batches ahead on
    streams of their own; without them a batch is copied when it is needed. `bucket_bytes` is the size of a
    gradient bucket (DistributedDataParallel's `bucket_cap_mb`, 25 by default). `in_flight` is the number of
    micro-batches with saved activations at a time, as in a pipeline; `gathered_bytes` are outputs of other
    devices. Under ZeRO, state outside experts is divided over `dense_shards` times as many devices.
    `communicator_bytes` are the buffers of NCCL, outside PyTorch's allocator.
    """

    data_parallel: int = 1
    zero_stage: int = 0
    eight_bit_optimizer: bool = False
    keep_gradients: bool = False
    tune_convolutions: bool = False
    prefetching_loaders: int = 0
    bucket_bytes: int = 25 << 20
    in_flight: float = 1.0
    gathered_bytes: int = 0
    dense_shards: int = 1
    communicator_bytes: int = 0

    def __post_init__(self) -> None:
        if self.data_parallel < 1:
            raise InvalidRequest(f"data_parallel must be at least 1, got {self.data_parallel}")
        if self.zero_stage not in (0, 1, 2, 3):
            raise InvalidRequest(f"zero_stage must be 0, 1, 2 or 3, got {self.zero_stage}")


BUCKET_BYTES = 25 << 20
"""DistributedDataParallel's `bucket_cap_mb`."""
FIRST_BUCKET_BYTES = 1 << 20
"""DistributedDataParallel's first bucket is small, so that reduction starts early."""


class Gradient(NamedTuple):
    """A parameter's gradient: its size, and the call after which it is ready."""

    parameter: str
    elements: int
    bytes: int
    ready: int


class Bucket(NamedTuple):
    """Gradients that are reduced together when the last of them is ready."""

    elements: int
    bytes: int
    ready: int


@once_per_graph
def gradients(graph: Graph) -> tuple[Gradient, ...]:
    """All gradients in the order they are ready."""
    ready: dict[int, int] = {}
    for index, call in enumerate(graph.calls):
        if call.phase is Phase.BACKWARD:
            for buffer in call.writes:
                if graph.buffers[buffer].role is Role.GRADIENT:
                    ready[buffer] = index
    last = optimizer_start(graph) - 1
    for buffer, each in enumerate(graph.buffers):  # traces may lack the write of the first gradient
        if each.role is Role.GRADIENT and each.born >= 0:
            ready.setdefault(buffer, min(each.born, last))
    listed = []
    for buffer, call_index in ready.items():
        spec = graph.specs[graph.buffers[buffer].spec]
        listed.append(Gradient(graph.buffers[buffer].name, spec.elements, spec.bytes, call_index))
    return tuple(sorted(listed, key=lambda gradient: gradient.ready))


def fill_buckets(
    ordered: Iterable[Gradient], most: float = BUCKET_BYTES, first: float = FIRST_BUCKET_BYTES
) -> Iterator[Bucket]:
    """Gradients in buckets of about `most` bytes; the first bucket is smaller.

    A bucket is closed when it reaches its limit, as in DistributedDataParallel.
    """
    elements = size = 0
    limit, last = first, None
    for gradient in ordered:
        elements, size, last = elements + gradient.elements, size + gradient.bytes, gradient
        if size >= limit:
            yield Bucket(elements, size, gradient.ready)
            elements = size = 0
            limit = most
    if size and last is not None:
        yield Bucket(elements, size, last.ready)


@once_per_graph
def optimizer_start(graph: Graph) -> int:
    """The first call of the optimizer, or the number of calls without one."""
    calls = enumerate(graph.calls)
    return next((index for index, call in calls if call.phase is Phase.OPTIMIZER), len(graph.calls))


@once_per_graph
def forward_end(graph: Graph) -> int:
    """The first call after the forward pass."""
    calls = enumerate(graph.calls)
    return next((index for index, call in calls if call.phase is not Phase.FORWARD), len(graph.calls))


def reduce_last(program: Program) -> Program:
    """The program with gradients reduced after the backward pass, without overlap."""
    start = optimizer_start(program.graph)
    # Exchanges that the optimizer waits for are reductions of gradients; gathers of blocks stay.
    later = (
        exchange._replace(after=start - 1)
        if exchange.when is When.LAST and exchange.before == start
        else exchange
        for exchange in program.exchanges
    )
    return replace(program, exchanges=tuple(later))


def parameter_bytes(graph: Graph) -> int:
    """Bytes of all parameters."""
    return sum(graph.specs[buffer.spec].bytes for buffer in graph.buffers if buffer.role is Role.PARAMETER)


AVERAGING = (Axis.CONTEXT, Axis.EXPERT, Axis.SHARD, Axis.DATA)


def group_averaged(
    program: Program, axes: tuple[Axis, ...] = AVERAGING
) -> Iterator[tuple[tuple[Axis, ...], Sequence[Gradient]]]:
    """Groups of axes and the gradients averaged along them, in the order they are ready."""
    every = gradients(program.graph)
    if program.degree(Axis.EXPERT) == 1:
        yield axes, every
        return
    yield axes, [gradient for gradient in every if not is_of_expert(gradient.parameter)]
    without = tuple(axis for axis in axes if axis is not Axis.EXPERT)
    yield without, [gradient for gradient in every if is_of_expert(gradient.parameter)]


def is_of_expert(parameter: str) -> bool:
    """Whether a parameter belongs to an expert or to a stack of experts."""
    return "experts" in parameter.split(".")
