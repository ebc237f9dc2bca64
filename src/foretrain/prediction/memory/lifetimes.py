"""Tensor lifetimes: what is in device memory and when, as the allocator of one device sees a step.

A graph knows the life of every buffer within a steady step. Training adds what lies around the step: weights
come first; optimizer state appears in the first optimizer step and stays; gradients stay until they are
zeroed; libraries borrow workspaces; data parallelism adds buckets and, under ZeRO, leaves a device only its
share of state, gradients and parameters (Rajbhandari et al. 2020, arXiv:1910.02054).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from foretrain.prediction.memory.workspace import convolution_workspaces, first_products, tuned_calls
from foretrain.prediction.strategies.division.optimizer_states import owners_of_states
from foretrain.prediction.strategies.gradients import is_of_expert
from foretrain.prediction.strategies.memory_options import MemoryOptions
from foretrain.prediction.strategies.sharded import gathered_units
from foretrain.workloads.graph import Graph, Phase, Role

QUANTISED_BLOCK = 256
"""Elements of optimizer state that share a scale in an 8-bit optimizer (Dettmers et al. 2022)."""
QUANTISED_FROM = 4096
"""Smaller tensors keep 32-bit state, as bitsandbytes does."""


class Part(StrEnum):
    """What the memory of a device is spent on.

    Under mixed precision an FP32 parameter that is computed with in half is a master weight, its copy in half
    a cast weight; those used as they are (norms, say) are plain parameters.
    """

    PARAMETERS = "parameters"
    GRADIENTS = "gradients"
    OPTIMIZER_STATE = "optimizer state"
    MASTER_WEIGHTS = "master weights"
    CAST_WEIGHTS = "cast weights"
    ACTIVATIONS = "saved activations"
    INPUTS = "inputs"
    TEMPORARIES = "temporaries"
    WORKSPACE = "workspace"
    BUCKETS = "communication buckets"
    CONTEXT = "framework context"
    FRAGMENTATION = "allocator rounding and fragmentation"


class Piece(NamedTuple):
    """An allocation of a part, and the calls of a step it lives through.

    `shards` devices may divide it, if it is a parameter, a gradient or optimizer state.
    """

    part: Part
    bytes: int
    start: int = -1
    end: int = -1
    shards: int = 1


@dataclass(frozen=True)
class TensorLifetimes:
    """All pieces by how long they stay.

    `resident` from before the first step; `state` from the first optimizer step; `inputs` from before a step
    until after the next ones have arrived; `passing` from call `start` to call `end` of every step;
    `communication` likewise, but on the streams of exchanges, whose memory other streams cannot reuse;
    `gradients` likewise, but they stay until zeroed if `end` is the number of calls. `handles` are the calls
    at which a library takes a lasting workspace, `tuned` those after which the cache is emptied once.
    """

    calls: int
    optimizer_start: int
    resident: tuple[Piece, ...]
    state: tuple[Piece, ...]
    inputs: tuple[Piece, ...]
    passing: tuple[Piece, ...]
    communication: tuple[Piece, ...]
    gradients: tuple[Piece, ...]
    handles: tuple[Piece, ...]
    tuned: frozenset[int]


_PART_OF_ROLE = {
    Role.PARAMETER: Part.PARAMETERS,
    Role.MODULE_BUFFER: Part.PARAMETERS,
    Role.INPUT: Part.INPUTS,
    Role.GRADIENT: Part.GRADIENTS,
    Role.OPTIMIZER_STATE: Part.OPTIMIZER_STATE,
    Role.CAST_WEIGHT: Part.CAST_WEIGHTS,
    Role.ACTIVATION: Part.ACTIVATIONS,
    Role.TEMPORARY: Part.TEMPORARIES,
}


def tensor_lifetimes(graph: Graph, options: MemoryOptions, cublas_workspace_bytes: int) -> TensorLifetimes:
    """What is in one device's memory during a step."""
    by_role = _by_role(graph, options)
    optimizer_start = _optimizer_start(graph)
    sharded = {stage: options.zero_stage >= stage for stage in (1, 2, 3)}
    gathers = sharded[3] and options.data_parallel * options.dense_shards > 1
    scatters = sharded[2] and options.data_parallel * options.dense_shards > 1
    state = tuple(
        Piece(piece.part, _share(_state_bytes(graph, piece, index, options), piece, sharded[1]))
        for index, piece in by_role[Role.OPTIMIZER_STATE]
    )
    parameters = tuple(
        piece._replace(bytes=_share(piece.bytes, piece, sharded[3])) for _, piece in by_role[Role.PARAMETER]
    )
    gradients = [piece for _, piece in by_role[Role.GRADIENT]]
    lasting: list[Piece] = []
    if graph.settings.get("full_gradients"):  # added up and reduced in place, so they never leave
        lasting = [piece._replace(bytes=_share(piece.bytes, piece, sharded[2])) for piece in gradients]
        gradients = []
    return TensorLifetimes(
        calls=len(graph.calls),
        optimizer_start=optimizer_start,
        resident=(
            *parameters,
            *_pieces(by_role[Role.MODULE_BUFFER]),
            *lasting,
            *_lasting_buckets(gradients, options),
            *_of_others(graph, options),
        ),
        state=state,
        inputs=_pieces(by_role[Role.INPUT]),
        passing=(
            *_passing(by_role, optimizer_start, options),
            *_workspaces(graph),
        ),
        communication=(
            *(_gathered(graph) if gathers else ()),
            *(_reduce_buckets(gradients, options) if scatters else ()),
        ),
        gradients=tuple(_reduced(gradients, options) if scatters else gradients),
        handles=tuple(
            Piece(Part.WORKSPACE, cublas_workspace_bytes, call, call) for call in first_products(graph)
        ),
        tuned=tuned_calls(graph) if options.tune_convolutions else frozenset(),
    )


def _share(size: int, piece: Piece, is_sharded: bool) -> int:
    """A device's bytes of what `piece.shards` devices may divide."""
    return math.ceil(size / piece.shards) if is_sharded else size


def _by_role(graph: Graph, options: MemoryOptions) -> dict[Role, list[tuple[int, Piece]]]:
    found: dict[Role, list[tuple[int, Piece]]] = {role: [] for role in Role}
    owners = owners_of_states(graph) if options.dense_shards > 1 else {}
    cast = {buffer.name for buffer in graph.buffers if buffer.role is Role.CAST_WEIGHT}
    for index, buffer in enumerate(graph.buffers):
        size = graph.specs[buffer.spec].bytes
        part = _PART_OF_ROLE[buffer.role]
        if buffer.role is Role.PARAMETER and buffer.name in cast:
            part = Part.MASTER_WEIGHTS
        if size:
            shards = options.data_parallel
            if options.dense_shards > 1 and not is_of_expert(graph.buffers[owners.get(index, index)].name):
                shards *= options.dense_shards
            found[buffer.role].append((index, Piece(part, size, buffer.born, buffer.dies, shards)))
    return found


def _pieces(listed: Sequence[tuple[int, Piece]]) -> tuple[Piece, ...]:
    return tuple(piece for _, piece in listed)


def _optimizer_start(graph: Graph) -> int:
    calls = enumerate(graph.calls)
    return next((index for index, call in calls if call.phase is Phase.OPTIMIZER), len(graph.calls))


def _state_bytes(graph: Graph, piece: Piece, index: int, options: MemoryOptions) -> int:
    elements = graph.specs[graph.buffers[index].spec].elements
    if not options.eight_bit_optimizer or elements < QUANTISED_FROM:
        return piece.bytes
    return elements + 4 * math.ceil(elements / QUANTISED_BLOCK)


def _passing(
    by_role: dict[Role, list[tuple[int, Piece]]], optimizer_start: int, options: MemoryOptions
) -> Iterator[Piece]:
    """Activations, temporaries and cast weights; an 8-bit optimizer updates in place, in one kernel."""
    roles = [Role.ACTIVATION, Role.TEMPORARY]
    gathers_cast_weights = options.zero_stage == 3 and options.data_parallel * options.dense_shards > 1
    if not gathers_cast_weights:
        roles.append(Role.CAST_WEIGHT)
    for role in roles:
        for _, piece in by_role[role]:
            if piece.start < optimizer_start:
                yield piece
            elif not options.eight_bit_optimizer:
                shards = options.data_parallel if options.zero_stage else 1
                yield piece._replace(bytes=math.ceil(piece.bytes / shards))


def _workspaces(graph: Graph) -> Iterator[Piece]:
    for call, sizes in convolution_workspaces(graph).items():
        yield Piece(Part.WORKSPACE, max(sizes), call, call)


def _gathered(graph: Graph) -> Iterator[Piece]:
    for unit in gathered_units(graph):
        yield Piece(Part.PARAMETERS, unit.bytes, unit.start, unit.end)


def _of_others(graph: Graph, options: MemoryOptions) -> Iterator[Piece]:
    """Activations of the other micro-batches in flight, and outputs gathered from other devices."""
    if options.in_flight > 1:
        yield Piece(Part.ACTIVATIONS, math.ceil((options.in_flight - 1) * saved_bytes(graph)))
    if options.gathered_bytes:
        yield Piece(Part.TEMPORARIES, options.gathered_bytes)


def saved_bytes(graph: Graph) -> int:
    """What is kept of a forward pass until its backward pass."""
    end = sum(call.phase is Phase.FORWARD for call in graph.calls)
    return sum(
        graph.specs[buffer.spec].bytes
        for buffer in graph.buffers
        if buffer.role is Role.ACTIVATION and buffer.born < end <= buffer.dies
    )


def _lasting_buckets(gradients: Sequence[Piece], options: MemoryOptions) -> Iterator[Piece]:
    """DistributedDataParallel copies gradients into buckets that together hold them all."""
    if options.data_parallel == 1 or options.zero_stage >= 2:
        return
    for bucket in _buckets(gradients, options.bucket_bytes):
        yield Piece(Part.BUCKETS, sum(piece.bytes for piece in bucket))


def _reduce_buckets(gradients: Sequence[Piece], options: MemoryOptions) -> Iterator[Piece]:
    """The flat copy of each full bucket, which lives while it is reduced: until the next one is full."""
    buckets = list(_buckets(gradients, options.bucket_bytes))
    for bucket, after in zip(buckets, [*buckets[1:], *buckets[-1:]], strict=True):
        size = sum(piece.bytes for piece in bucket)
        yield Piece(Part.BUCKETS, size, bucket[-1].start, after[-1].start)


def _reduced(gradients: Sequence[Piece], options: MemoryOptions) -> Iterator[Piece]:
    """Whole gradients until their bucket is full, then this device's share of them."""
    for bucket in _buckets(gradients, options.bucket_bytes):
        closed = bucket[-1].start
        for piece in bucket:
            yield piece._replace(end=closed)
            share = math.ceil(piece.bytes / piece.shards)
            yield Piece(Part.GRADIENTS, share, closed, piece.end)


def _buckets(gradients: Sequence[Piece], bucket_bytes: int) -> Iterator[list[Piece]]:
    """Gradients in the order they appear, in groups of at least `bucket_bytes`."""
    bucket: list[Piece] = []
    for piece in sorted(gradients, key=lambda piece: piece.start):
        bucket.append(piece)
        if sum(item.bytes for item in bucket) >= bucket_bytes:
            yield bucket
            bucket = []
    if bucket:
        yield bucket
