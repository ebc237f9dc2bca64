"""Gradients of a step: when they are ready, their buckets, and the axes along which they are averaged.

Devices along the context, expert, shard and data axes have gradients of the same parameters. Experts are the
exception: along the expert axis every device has different experts (see `expert`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from foretrain.prediction.strategies.program import Axis, Program, When
from foretrain.workloads.graph import Graph, Phase, Role, once_per_graph

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


def gradients(graph: Graph) -> list[Gradient]:
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
    return sorted(listed, key=lambda gradient: gradient.ready)


def bucketed(
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


def reduced_last(program: Program) -> Program:
    """The program with gradients reduced after the backward pass, without overlap."""
    start = optimizer_start(program.graph)
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


def averaged(
    program: Program, axes: tuple[Axis, ...] = AVERAGING
) -> Iterator[tuple[tuple[Axis, ...], list[Gradient]]]:
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
