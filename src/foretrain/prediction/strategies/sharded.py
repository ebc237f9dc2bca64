"""ZeRO and FSDP: replicas share what they would otherwise all hold.

Stage 1 shards the optimizer's state: gradients are reduce-scattered, each device updates its share, and the
new parameters are all-gathered. Stage 2 also drops the gradients of others. Stage 3 (FSDP) holds only a share
of the parameters: each block is all-gathered before it is used, forward and backward, one block ahead, and
its gradients are reduce-scattered after. Hybrid sharding does so within a part of the devices and all-reduces
the shares between the parts.
Rajbhandari et al. 2020, arXiv:1910.02054; Zhao et al. 2023, arXiv:2304.11277.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from foretrain.prediction.collectives._base import Verb
from foretrain.prediction.sharding import gathered_units, item_bytes, unit_of
from foretrain.prediction.strategies.averaging import AVERAGING, averaged
from foretrain.prediction.strategies.gradients import BUCKET_BYTES, Gradient, buckets, optimizer_start
from foretrain.prediction.strategies.program import Axis, Exchange, Program, When
from foretrain.workloads.graph import NO_TENSOR, Buffer, Call, Graph, Phase, Role, Spec

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
    """The same step where each optimizer call works on a share of its tensors. For its time alone."""
    if degree == 1:
        return graph
    specs, buffers = list(graph.specs), list(graph.buffers)
    numbers: dict[Spec, int] = {}

    def share(index: int) -> int:
        spec = specs[index]
        part = Spec((math.ceil(spec.elements / degree),), spec.dtype)
        if part not in numbers:
            numbers[part] = len(specs)
            specs.append(part)
        return numbers[part]

    spec_shares: dict[int, int] = {NO_TENSOR: NO_TENSOR}
    buffer_shares: dict[int, int] = {}

    def spec_share(index: int) -> int:
        if index not in spec_shares:
            spec_shares[index] = share(index)
        return spec_shares[index]

    def buffer_share(index: int) -> int:
        if index not in buffer_shares:
            buffers.append(buffers[index]._replace(spec=share(buffers[index].spec)))
            buffer_shares[index] = len(buffers) - 1
        return buffer_shares[index]

    def divided(call: Call) -> Call:
        return call._replace(
            inputs=tuple([spec_share(index) for index in call.inputs]),
            outputs=tuple([spec_share(index) for index in call.outputs]),
            reads=tuple([buffer_share(index) for index in call.reads]),
            writes=tuple([buffer_share(index) for index in call.writes]),
        )

    calls = tuple(divided(call) if call.phase is Phase.OPTIMIZER else call for call in graph.calls)
    return replace(graph, calls=calls, specs=tuple(specs), buffers=tuple(buffers))
