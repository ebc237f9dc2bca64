"""Sharded.

Sharded parameters: which of them a device gathers together, and for which calls.

ZeRO and FSDP: replicas share what they would otherwise all hold.

Stage 1 shards the optimizer's state: gradients are reduce-scattered, each device updates its share, and the
new parameters are all-gathered. Stage 2 also drops the gradients of others. Stage 3 (FSDP) holds only a share
of the parameters: each block is all-gathered before it is used, forward and backward, one block ahead, and
its gradients are reduce-scattered after. Hybrid sharding does so within a part of the devices and all-reduces
the shares between the parts.
Rajbhandari et al. 2020, arXiv:1910.02054; Zhao et al. 2023, arXiv:2304.11277.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from foretrain.prediction.collectives._base import Verb
from foretrain.prediction.strategies.gradients import (
    AVERAGING,
    BUCKET_BYTES,
    Gradient,
    averaged,
    buckets,
    optimizer_start,
)
from foretrain.prediction.strategies.program import Axis, Exchange, Program, When
from foretrain.workloads.graph import ITEM_BYTES, NO_TENSOR, Buffer, Call, Graph, Phase, Role, Spec
from foretrain.workloads.ops import MATRIX_KINDS, Kind
from foretrain.workloads.rules import operators

ROOT = ""
"""The unit of the parameters outside any repeated block; it stays gathered throughout."""

_HALF = {"fp16": "float16", "bf16": "bfloat16", "fp8": "bfloat16"}


class Gathered(NamedTuple):
    """A unit's whole parameters, from the call they are gathered before to the last that needs them.

    `needed` is the first call that needs them.
    """

    unit: str
    bytes: int
    start: int
    end: int
    needed: int


def unit_of(parameter: str) -> str:
    """The block a parameter belongs to: its path up to the first number, `layers.3` of `layers.3.mlp.up`."""
    components = parameter.split(".")
    for position, component in enumerate(components[:-1]):
        if component.isdigit():
            return ".".join(components[: position + 1])
    return ROOT


def item_bytes(graph: Graph, spec: Spec | None) -> int:
    """Bytes of one element of a parameter as it is sent: half precision under mixed precision.

    Without a spec: those of half precision, or 0 where parameters are sent as they are.
    """
    half = ITEM_BYTES.get(_HALF.get(str(graph.settings.get("precision")), ""), 0)
    return half or (ITEM_BYTES[spec.dtype] if spec else 0)


def gathered_units(graph: Graph) -> list[Gathered]:
    """Every gathering of a step: each block once forward and once backward, one block prefetched.

    Under mixed precision units are gathered in half precision, as FSDP does with a `param_dtype`.
    """
    sizes: dict[str, int] = {}
    unit_of_buffer: dict[int, str] = {}
    for index, buffer in enumerate(graph.buffers):
        if buffer.role is Role.PARAMETER:
            unit = unit_of(buffer.name)
            unit_of_buffer[index] = unit
            spec = graph.specs[buffer.spec]
            sizes[unit] = sizes.get(unit, 0) + spec.elements * item_bytes(graph, spec)
    return _prefetched(_uses(graph, unit_of_buffer), sizes)


def _uses(graph: Graph, unit_of_buffer: dict[int, str]) -> dict[tuple[str, Phase], tuple[int, int]]:
    """First and last call that reads each unit, forward and backward, or makes gradients of it.

    A first block may make gradients without reading its weights; it is gathered for its backward pass too.
    """
    found: dict[tuple[str, Phase], tuple[int, int]] = {}
    gradient_of = {
        index: unit_of(buffer.name)
        for index, buffer in enumerate(graph.buffers)
        if buffer.role is Role.GRADIENT
    }
    for index, call in enumerate(graph.calls):
        if call.phase is Phase.OPTIMIZER:
            break
        units = {unit_of_buffer[buffer] for buffer in call.reads if buffer in unit_of_buffer}
        if call.phase is Phase.BACKWARD:
            units |= {gradient_of[buffer] for buffer in call.writes if buffer in gradient_of} - {ROOT}
        for unit in units:
            phase = Phase.FORWARD if unit == ROOT else call.phase
            start, _ = found.get((unit, phase), (index, index))
            found[unit, phase] = (start, index)
    return found


def _prefetched(uses: dict[tuple[str, Phase], tuple[int, int]], sizes: dict[str, int]) -> list[Gathered]:
    """Each unit is gathered when the one before it starts."""
    gathered: list[Gathered] = []
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        blocks: Iterable[tuple[str, tuple[int, int]]] = sorted(
            ((unit, span) for (unit, at), span in uses.items() if at is phase and unit != ROOT),
            key=lambda item: item[1],
        )
        previous: int | None = None
        for unit, (start, end) in blocks:
            gathered.append(Gathered(unit, sizes[unit], start if previous is None else previous, end, start))
            previous = start
    if (ROOT, Phase.FORWARD) in uses:
        start, end = uses[ROOT, Phase.FORWARD]
        gathered.append(Gathered(ROOT, sizes[ROOT], start, end, start))
    return gathered


ACROSS = (Axis.CONTEXT, Axis.EXPERT, Axis.DATA)
"""The axes along which shares of gradients are still to be added up."""


def sharded(program: Program, degree: int, stage: int, replicas: int = 1) -> Program:
    """The program of one of `degree` devices that share state, `replicas` times over."""
    if degree == 1 and replicas == 1 and math.prod(program.degree(axis) for axis in AVERAGING) == 1:
        return program
    spread = program.spread(Axis.SHARD, degree).spread(Axis.DATA, replicas)
    graph = program.graph
    added = [*(_gathered_blocks(graph) if stage == 3 else _gathered_parameters(graph))]
    for across, same in averaged(spread, ACROSS):
        reductions = [*_reductions(graph, same, stage)]
        added += reductions
        if math.prod(spread.degree(axis) for axis in across) > 1:
            added += [_between_parts(reduction, degree, across) for reduction in reductions]
    return replace(spread, exchanges=(*spread.exchanges, *added), zero_stage=stage)


def _gathered_blocks(graph: Graph) -> Iterator[Exchange]:
    """Blocks one after the other, each ahead of the call that needs it by the block before it."""
    for unit in gathered_units(graph):
        yield Exchange(
            name=f"all-gather {unit.unit or 'other parameters'}",
            verb=Verb.ALL_GATHER,
            bytes=unit.bytes,
            axis=Axis.SHARD,
            after=unit.start - 1,
            before=unit.needed,
            when=When.EVERY,
        )


def _gathered_parameters(graph: Graph) -> Iterator[Exchange]:
    """All parameters, once they are updated."""
    size = sum(_sent(graph, buffer) for buffer in graph.buffers if buffer.role is Role.PARAMETER)
    end = len(graph.calls)
    yield Exchange("all-gather parameters", Verb.ALL_GATHER, size, Axis.SHARD, end - 1, end, When.LAST)


def _sent(graph: Graph, buffer: Buffer) -> float:
    spec = graph.specs[buffer.spec]
    return spec.elements * item_bytes(graph, spec)


def _reductions(graph: Graph, ready_gradients: list[Gradient], stage: int) -> Iterator[Exchange]:
    """Gradients by bucket, or by block where the parameters come and go by block."""
    waiting = optimizer_start(graph)
    sent = [_in_sent_precision(graph, gradient) for gradient in ready_gradients]
    for name, size, ready in _by_block(sent) if stage == 3 else _by_bucket(sent):
        yield Exchange(
            name=f"reduce-scatter gradients {name}",
            verb=Verb.REDUCE_SCATTER,
            bytes=size,
            axis=Axis.SHARD,
            after=ready,
            before=waiting,
            when=When.LAST if stage < 2 else When.EVERY,
        )


def _by_bucket(sent: list[Gradient]) -> Iterator[tuple[str, float, int]]:
    for number, bucket in enumerate(buckets(sent, BUCKET_BYTES, BUCKET_BYTES), start=1):
        yield str(number), bucket.bytes, bucket.ready


def _by_block(sent: list[Gradient]) -> Iterator[tuple[str, float, int]]:
    sizes: dict[str, float] = {}
    ready: dict[str, int] = {}
    for gradient in sent:
        unit = unit_of(gradient.parameter)
        sizes[unit] = sizes.get(unit, 0.0) + gradient.bytes
        ready[unit] = max(ready.get(unit, -1), gradient.ready)
    for unit in sorted(sizes, key=lambda unit: ready[unit]):
        yield unit or "of other parameters", sizes[unit], ready[unit]


def _in_sent_precision(graph: Graph, gradient: Gradient) -> Gradient:
    """Gradients are reduced in the precision parameters are gathered in, or in FP32 if added up in it."""
    half = 0 if graph.settings.get("full_gradients") else item_bytes(graph, None)
    return gradient._replace(bytes=gradient.elements * half) if half else gradient


def _between_parts(reduction: Exchange, degree: int, axes: tuple[Axis, ...]) -> Exchange:
    """The shares of a reduction, added up between the parts; it waits its turn on a stream of its own."""
    return reduction._replace(
        name=reduction.name.replace("reduce-scatter", "all-reduce shares of"),
        verb=Verb.ALL_REDUCE,
        bytes=reduction.bytes / degree,
        axis=axes[0],
        also=axes[1:],
        when=When.LAST,
    )


def with_sharded_optimizer(graph: Graph, degree: int) -> Graph:
    """The same step where each optimizer call works on a share of its tensors. For its time alone.

    Updates work on a share of the elements, products and means (of Adafactor) on a share of the rows.
    """
    if degree == 1:
        return graph
    shares = _Shares(graph, degree)
    by_rows = {op.call for op in operators(graph) if op.work.kind in _BY_ROWS}
    calls = tuple(
        shares.call(call, index in by_rows) if call.phase is Phase.OPTIMIZER else call
        for index, call in enumerate(graph.calls)
    )
    return replace(graph, calls=calls, specs=tuple(shares.specs), buffers=tuple(shares.buffers))


_BY_ROWS = frozenset({*MATRIX_KINDS, Kind.REDUCTION})


class _Shares:
    """Specs and buffers of shares, each kept once."""

    def __init__(self, graph: Graph, degree: int) -> None:
        self.specs, self.buffers = list(graph.specs), list(graph.buffers)
        self._degree = degree
        self._number: dict[Spec, int] = {}
        self._of_buffer: dict[tuple[int, bool], int] = {}

    def call(self, call: Call, by_rows: bool) -> Call:
        """A call on shares of its tensors."""
        return call._replace(
            inputs=tuple([self._spec(index, by_rows) for index in call.inputs]),
            outputs=tuple([self._spec(index, by_rows) for index in call.outputs]),
            reads=tuple([self._buffer(index, by_rows) for index in call.reads]),
            writes=tuple([self._buffer(index, by_rows) for index in call.writes]),
        )

    def _spec(self, index: int, by_rows: bool) -> int:
        if index == NO_TENSOR:
            return NO_TENSOR
        whole = self.specs[index]
        shape: tuple[int, ...] = (math.ceil(whole.elements / self._degree),)
        if by_rows and whole.shape:
            shape = (math.ceil(whole.shape[0] / self._degree), *whole.shape[1:])
        part = Spec(shape, whole.dtype)
        if part not in self._number:
            self._number[part] = len(self.specs)
            self.specs.append(part)
        return self._number[part]

    def _buffer(self, index: int, by_rows: bool) -> int:
        key = index, by_rows
        if key not in self._of_buffer:
            self._of_buffer[key] = len(self.buffers)
            buffer = self.buffers[index]
            self.buffers.append(buffer._replace(spec=self._spec(buffer.spec, by_rows)))
        return self._of_buffer[key]
