"""Tensor lifetimes: the allocations of one device in a step, and the calls they live through.

A graph holds the lifetime of every buffer within a steady step. Training adds lifetimes beyond the step:
weights are allocated first; optimizer state is allocated in the first optimizer step and stays; gradients
stay until they are zeroed; libraries use workspaces; data parallelism adds buckets and, under ZeRO, leaves a
device only its share of state, gradients and parameters (Rajbhandari et al. 2020, arXiv:1910.02054).

Workspaces of cuBLAS are permanent: PyTorch allocates one for every handle at its first matrix product, and
the forward pass and the autograd thread have one handle each. Those of cuDNN are temporary: tensor-core
kernels for convolutions larger than 1×1 work on channels-last data and first transpose channels-first input,
weight and output into a workspace, which is freed after the call. Depthwise convolutions run in PyTorch's own
kernels, grouped and 1×1 ones in kernels that need almost none.

Allocations are columns of numbers. What does not depend on the sizes of tensors is derived once for a family
of graphs (`_Wiring`), so that another batch size takes a few operations on columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretrain.prediction.memory.allocator import Integers
from foretrain.prediction.strategies.program import MemoryOptions, is_of_expert, unit_of
from foretrain.prediction.strategies.sharded import gather_units
from foretrain.workloads.executed import ACTIVATIONS, OPTIMIZER, PARAMETERS, is_offloaded
from foretrain.workloads.graph import (
    Call,
    Graph,
    Nature,
    Phase,
    Role,
    Spec,
    Structure,
    once_per_graph,
    once_per_structure,
)
from foretrain.workloads.options import QUANTISED_BLOCK, QUANTISED_FROM, is_paged

_PRODUCTS = frozenset({"aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm"})
_FORWARD, _BACKWARD = "aten.convolution", "aten.convolution_backward"


class Convolution(NamedTuple):
    """A convolution call, and the specs of its tensors from the view of the forward pass."""

    place: int
    call: Call
    input: int
    weight: int
    output: int

    @property
    def groups(self) -> int:
        """Groups of channels that are convolved apart."""
        return int(self.call.settings["groups"])


@once_per_structure
def _convolutions(structure: Structure) -> tuple[Convolution, ...]:
    convolutions = []
    for index, call in enumerate(structure.calls):
        if call.name == _FORWARD:
            convolutions.append(Convolution(index, call, call.inputs[0], call.inputs[1], call.outputs[0]))
        elif call.name == _BACKWARD:
            convolutions.append(Convolution(index, call, call.inputs[1], call.inputs[2], call.inputs[0]))
    return tuple(convolutions)


def convolution_workspaces(graph: Graph) -> Mapping[int, int]:
    """Workspace bytes of each convolution call that needs one: input, weight and output, transposed."""
    if graph.options.channels_last:
        return {}
    sizes = _spec_bytes(graph).tolist()
    return {
        each.place: sizes[each.input] + sizes[each.weight] + sizes[each.output]
        for each in _convolutions(graph.structure)
        if each.groups == 1 and any(size > 1 for size in graph.specs[each.weight].shape[2:])
    }


def tuned_calls(graph: Graph) -> frozenset[int]:
    """The calls that cuDNN's benchmark mode tunes: the first of each size, except depthwise ones.

    After tuning a call, PyTorch empties the allocator's cache (Conv_v8.cpp).
    """
    first: dict[tuple[object, ...], int] = {}
    for each in _convolutions(graph.structure):
        is_depthwise = each.groups > 1 and graph.specs[each.weight].shape[1] == 1
        if not is_depthwise:
            first.setdefault((each.call.name, each.call.inputs, repr(each.call.settings)), each.place)
    return frozenset(first.values())


@once_per_structure
def _first_products(structure: Structure) -> tuple[int, ...]:
    first: dict[Phase, int] = {}
    for index, call in enumerate(structure.calls):
        if call.name in _PRODUCTS and call.phase is not Phase.OPTIMIZER:
            first.setdefault(call.phase, index)
    return tuple(first.values())


def first_products(graph: Graph) -> tuple[int, ...]:
    """The calls at which cuBLAS allocates its workspaces: the first products forward and backward."""
    return _first_products(graph.structure)


def uses_convolutions(graph: Graph) -> bool:
    """Whether the step loads cuDNN's convolution kernels."""
    return any(each.call.name == _FORWARD for each in _convolutions(graph.structure))


class MemoryUse(StrEnum):
    """The uses of device memory.

    Under mixed precision an FP32 parameter with a copy in half precision is a master weight and the copy a
    cast weight; parameters used in FP32, such as those of norms, are parameters.
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
    COMMUNICATORS = "communicators"
    FRAGMENTATION = "allocator rounding and fragmentation"


USES = tuple(MemoryUse)
"""Columns hold the index of a use in here."""


@dataclass(frozen=True, eq=False)
class Allocations:
    """Allocations in columns: their use, their size, the first and the last call they live through."""

    uses: Integers
    bytes: Integers
    starts: Integers
    ends: Integers

    def __len__(self) -> int:
        return len(self.bytes)

    def __getitem__(self, chosen: Integers | NDArray[np.bool_]) -> Allocations:
        return Allocations(self.uses[chosen], self.bytes[chosen], self.starts[chosen], self.ends[chosen])

    def bytes_of(self, use: MemoryUse) -> int:
        """Bytes of one use."""
        return int(self.bytes[self.uses == USES.index(use)].sum())


_Numbers = int | Sequence[int] | Integers


def _allocate(use: MemoryUse, sizes: _Numbers, starts: _Numbers = -1, ends: _Numbers = -1) -> Allocations:
    """Allocations of one use; a size, start or end given once holds for all of them."""
    columns = np.broadcast_arrays(
        *(np.atleast_1d(np.asarray(each, np.int64)) for each in (sizes, starts, ends))
    )
    return Allocations(np.full(len(columns[0]), USES.index(use)), *columns)


def _join(groups: Sequence[Allocations]) -> Allocations:
    return Allocations(
        np.concatenate([group.uses for group in groups]),
        np.concatenate([group.bytes for group in groups]),
        np.concatenate([group.starts for group in groups]),
        np.concatenate([group.ends for group in groups]),
    )


@dataclass(frozen=True, eq=False)
class TensorLifetimes:
    """All allocations by their lifetime.

    `resident`: from before the first step. `state`: from the first optimizer step. `inputs`: from before a
    step until the next inputs have arrived. `passing`: from their first to their last call of every step.
    `communication`: the same, on the streams of exchanges, whose memory other streams cannot reuse.
    `gradients`: the same, but they stay until zeroed if they end with the number of calls. `handles` are
    permanent workspaces that a library allocates at a call, `tuned` the calls after which the cache is
    emptied once. `paged_bytes` are of optimizer state that the driver moves to the host where the device runs
    short.
    """

    calls: int
    optimizer_start: int
    resident: Allocations
    state: Allocations
    inputs: Allocations
    passing: Allocations
    communication: Allocations
    gradients: Allocations
    handles: Allocations
    tuned: frozenset[int]
    paged_bytes: int = 0


_USE_OF_ROLE = {
    Role.PARAMETER: MemoryUse.PARAMETERS,
    Role.MODULE_BUFFER: MemoryUse.PARAMETERS,
    Role.INPUT: MemoryUse.INPUTS,
    Role.GRADIENT: MemoryUse.GRADIENTS,
    Role.OPTIMIZER_STATE: MemoryUse.OPTIMIZER_STATE,
    Role.CAST_WEIGHT: MemoryUse.CAST_WEIGHTS,
    Role.ACTIVATION: MemoryUse.ACTIVATIONS,
    Role.TEMPORARY: MemoryUse.TEMPORARIES,
}


@dataclass(frozen=True, eq=False)
class _Wiring:
    """What follows from calls and buffers, whatever the sizes of tensors.

    `uses`, `specs`, `born` and `dies` are columns over all buffers, `roles` the buffers of each role. The
    first `forward` calls are the forward pass; `loss` are the calls of a fused loss; `added` are the specs of
    the weights of each product that adds to gradients, each combination once.
    """

    uses: Integers
    specs: Integers
    born: Integers
    dies: Integers
    roles: Mapping[Role, Integers]
    forward: int
    optimizer_start: int
    loss: tuple[int, ...]
    added: tuple[tuple[int, ...], ...]


@once_per_structure
def _wiring(structure: Structure) -> _Wiring:
    calls, buffers = structure.calls, structure.buffers
    phases = [call.phase for call in calls]
    indices: dict[Role, list[int]] = {role: [] for role in Role}
    for index, buffer in enumerate(buffers):
        indices[buffer.role].append(index)
    roles = {role: np.array(chosen, np.int64) for role, chosen in indices.items()}
    uses = np.empty(len(buffers), np.int64)
    for role, chosen in roles.items():
        uses[chosen] = USES.index(_USE_OF_ROLE[role])
    cast = {buffers[index].name for index in indices[Role.CAST_WEIGHT]}
    master = [index for index in indices[Role.PARAMETER] if buffers[index].name in cast]
    uses[master] = USES.index(MemoryUse.MASTER_WEIGHTS)
    return _Wiring(
        uses=uses,
        specs=np.array([buffer.spec for buffer in buffers], np.int64),
        born=np.array([buffer.born for buffer in buffers], np.int64),
        dies=np.array([buffer.dies for buffer in buffers], np.int64),
        roles=roles,
        forward=phases.count(Phase.FORWARD),
        optimizer_start=phases.index(Phase.OPTIMIZER) if Phase.OPTIMIZER in phases else len(calls),
        loss=tuple(index for index, call in enumerate(calls) if call.settings.get("part") == "loss"),
        added=_added_gradients(structure, frozenset(indices[Role.GRADIENT])),
    )


@once_per_structure
def _of_experts(structure: Structure) -> NDArray[np.bool_]:
    """Whether each buffer belongs to an expert."""
    return np.array([is_of_expert(buffer.name) for buffer in structure.buffers], bool)


@once_per_graph
def _spec_bytes(graph: Graph) -> Integers:
    return np.array([spec.bytes for spec in graph.specs], np.int64)


def _buffers(graph: Graph) -> Allocations:
    """All buffers of a graph."""
    wiring = _wiring(graph.structure)
    return Allocations(wiring.uses, _spec_bytes(graph)[wiring.specs], wiring.born, wiring.dies)


def tensor_lifetimes(graph: Graph, options: MemoryOptions, cublas_workspace_bytes: int) -> TensorLifetimes:
    """The allocations of one device during a step."""
    wiring, buffers, stage = _wiring(graph.structure), _buffers(graph), options.zero_stage
    indices = {role: chosen[buffers.bytes[chosen] > 0] for role, chosen in wiring.roles.items()}
    shards = np.full(len(buffers), options.data_parallel)
    if options.dense_shards > 1:
        shards[~_of_experts(graph.structure)] *= options.dense_shards

    def share(role: Role, is_sharded: bool, sizes: Integers = buffers.bytes) -> Allocations:
        """The allocations of a role, or what one device keeps of them."""
        chosen = indices[role]
        kept = _ceil(sizes[chosen], shards[chosen]) if is_sharded else sizes[chosen]
        return replace(buffers[chosen], bytes=kept)

    on_host = is_offloaded(graph, PARAMETERS)
    is_shared = options.data_parallel * options.dense_shards > 1
    gathers, scatters = on_host or (stage == 3 and is_shared), stage >= 2 and is_shared
    nothing = _allocate(MemoryUse.GRADIENTS, ())
    gradients, lasting = share(Role.GRADIENT, is_sharded=False), nothing
    if graph.options.adds_up_in_fp32:  # accumulated and reduced in place: never freed
        gradients, lasting = nothing, share(Role.GRADIENT, stage >= 2)
    shares = _ceil(gradients.bytes, shards[indices[Role.GRADIENT]][: len(gradients)])
    buckets = _fill_buckets(gradients, shares, options.bucket_bytes)
    if is_offloaded(graph, OPTIMIZER):
        gradients = buckets.until_full()
        buckets = replace(buckets, gradients=gradients)
    state, paged_bytes = share(Role.OPTIMIZER_STATE, stage >= 1, _state_bytes(graph, buffers, options)), 0
    if is_paged(graph.options.optimizer):
        state, paged_bytes = nothing, int(state.bytes.sum())
    has_lasting_buckets = options.data_parallel > 1 and stage < 2
    return TensorLifetimes(
        paged_bytes=paged_bytes,
        calls=len(graph.calls),
        optimizer_start=wiring.optimizer_start,
        resident=_join(
            (
                nothing if on_host else share(Role.PARAMETER, stage >= 3),
                buffers[indices[Role.MODULE_BUFFER]],
                lasting,
                _allocate(MemoryUse.BUCKETS, buckets.bytes if has_lasting_buckets else ()),
                _unused_gradients(graph),
                *_of_others(graph, options),
            )
        ),
        state=state,
        inputs=buffers[indices[Role.INPUT]],
        passing=_join((_passing(graph, buffers, indices, options), _workspaces(graph))),
        communication=_join(
            (_gather_parameters(graph) if gathers else nothing, buckets.copies() if scatters else nothing)
        ),
        gradients=buckets.reduce() if scatters else gradients,
        handles=_allocate(MemoryUse.WORKSPACE, cublas_workspace_bytes, *[first_products(graph)] * 2),
        tuned=tuned_calls(graph) if options.tune_convolutions else frozenset(),
    )


def _ceil(sizes: Integers, shares: Integers | int) -> Integers:
    return -(-sizes // shares)


@dataclass(frozen=True, eq=False)
class _Buckets:
    """Gradients in the order they appear, with the share of one device and the number of their bucket.

    `closed` is the call at which the bucket of each is full.
    """

    gradients: Allocations
    shares: Integers
    bucket: Integers
    closed: Integers

    @property
    def bytes(self) -> Integers:
        """The size of each bucket."""
        return np.bincount(self.bucket, self.gradients.bytes).astype(np.int64)

    def copies(self) -> Allocations:
        """The flat copy of each bucket, which lives until the next bucket is full."""
        full = self.closed[np.flatnonzero(np.diff(self.bucket, append=len(self.bucket)))]
        return _allocate(MemoryUse.BUCKETS, self.bytes, full, np.append(full[1:], full[-1:]))

    def until_full(self) -> Allocations:
        """Gradients that live until their bucket is full and copied to the host."""
        return replace(self.gradients, ends=self.closed)

    def reduce(self) -> Allocations:
        """Gradients in full until their bucket is full, each followed by the share of this device."""
        shares = replace(self.gradients, bytes=self.shares, starts=self.closed)
        both = _join((self.until_full(), shares))
        return both[np.arange(len(both)).reshape(2, -1).T.ravel()]


def _fill_buckets(gradients: Allocations, shares: Integers, bucket_bytes: int) -> _Buckets:
    """Groups of at least `bucket_bytes`, in the order in which gradients appear."""
    order = np.argsort(gradients.starts, kind="stable")
    gradients, number, filled = gradients[order], 0, 0
    bucket: list[int] = []
    for size in gradients.bytes.tolist():
        bucket.append(number)
        filled += size
        if filled >= bucket_bytes:
            number, filled = number + 1, 0
    numbers = np.array(bucket, np.int64)
    last = np.searchsorted(numbers, numbers, side="right") - 1
    return _Buckets(gradients, shares[order], numbers, gradients.starts[last])


def _state_bytes(graph: Graph, buffers: Allocations, options: MemoryOptions) -> Integers:
    """Sizes of buffers, as far as they are optimizer state."""
    if not options.eight_bit_optimizer:
        return buffers.bytes
    elements = np.array([spec.elements for spec in graph.specs], np.int64)[_wiring(graph.structure).specs]
    quantised = elements + 4 * _ceil(elements, QUANTISED_BLOCK)
    return np.where(elements < QUANTISED_FROM, buffers.bytes, quantised)


def _passing(
    graph: Graph, buffers: Allocations, indices: Mapping[Role, Integers], options: MemoryOptions
) -> Allocations:
    """Activations, temporaries and cast weights; an 8-bit optimizer updates in place in one kernel."""
    roles = [Role.ACTIVATION, Role.TEMPORARY]
    gathers_cast_weights = options.zero_stage == 3 and options.data_parallel * options.dense_shards > 1
    if not gathers_cast_weights and not is_offloaded(graph, PARAMETERS):
        roles.append(Role.CAST_WEIGHT)
    loss, optimizer_start = _fused_loss(graph), _wiring(graph.structure).optimizer_start
    chosen = np.concatenate([indices[role] for role in roles])
    chosen = chosen[~np.isin(chosen, loss.inner)]
    passing, is_logits = buffers[chosen], chosen == loss.logits
    passing = replace(passing, ends=np.where(is_logits, loss.end - 1, passing.ends))
    in_update = (passing.starts >= optimizer_start) & ~is_logits
    if is_offloaded(graph, ACTIVATIONS):
        leaves, returns = (column[chosen] for column in _at_host(graph))
        moves = (leaves >= 0) & ~is_logits
        in_update &= ~moves
        stored = replace(passing, ends=np.where(moves, leaves, passing.ends))
        returned = replace(passing, starts=returns)[moves]
        places = np.argsort(np.append(np.arange(len(stored)), np.flatnonzero(moves)), kind="stable")
        passing, in_update = (
            _join((stored, returned))[places],
            np.append(in_update, np.zeros(len(returned), bool))[places],
        )
    if options.eight_bit_optimizer:
        return passing[~in_update]
    shards = options.data_parallel if options.zero_stage else 1
    return replace(passing, bytes=np.where(in_update, _ceil(passing.bytes, shards), passing.bytes))


class _FusedLoss(NamedTuple):
    """A loss in one kernel: the buffers inside it that are never stored, the logits, and where it ends.

    The kernel computes in FP32 registers, keeps the logits in their own precision until the backward pass and
    writes their gradient in their place (Transformer Engine, `triton/cross_entropy.py`), also where the
    vocabulary is divided and the devices exchange maxima and sums.
    """

    inner: Integers
    logits: int = -1
    end: int = -1


_NO_LOSS = _FusedLoss(np.empty(0, np.int64))


@once_per_graph
def _fused_loss(graph: Graph) -> _FusedLoss:
    wiring = _wiring(graph.structure)
    if not wiring.loss or graph.calls[wiring.loss[0]].phase is not Phase.FORWARD:
        return _NO_LOSS
    first, last = wiring.loss[0], wiring.loss[-1]
    passing = (Role.ACTIVATION, Role.TEMPORARY)
    given = [index for index in graph.calls[first].reads if graph.buffers[index].role in passing]
    if not given or graph.calls[last].phase is not Phase.BACKWARD:
        return _NO_LOSS
    logits = max(given, key=graph.buffer_bytes)
    size = graph.specs[graph.buffers[logits].spec].elements
    inside = np.concatenate([wiring.roles[role] for role in passing])
    inside = inside[(first <= wiring.born[inside]) & (wiring.born[inside] < last)]
    inner = [index for index in inside.tolist() if graph.specs[graph.buffers[index].spec].elements >= size]
    return _FusedLoss(np.array(inner, np.int64), logits, last)


def _added_gradients(structure: Structure, gradients: frozenset[int]) -> tuple[tuple[int, ...], ...]:
    """The specs of weights to whose gradients a product adds: each combination once, in order."""
    buffers = structure.buffers
    weights = {buffer.name: buffer.spec for buffer in buffers if buffer.role is Role.PARAMETER}
    combinations: dict[tuple[int, ...], None] = {}
    for call in structure.calls:
        if (
            call.phase is Phase.BACKWARD
            and call.nature is Nature.OTHER
            and not gradients.isdisjoint(call.writes)
        ):
            added = [index for index in call.writes if index in gradients and index in call.reads]
            names = [buffers[index].name for index in added]
            combinations[tuple(weights[name] for name in names if name in weights)] = None
    return tuple(combinations)


def _unused_gradients(graph: Graph) -> Allocations:
    """Gradients that a product returns to autograd after it has added to the FP32 gradient itself.

    Nothing is ever in them, but autograd wants one of the weight's shape and type. Transformer Engine makes
    one of each shape and keeps it (`get_dummy_wgrad`), Megatron makes one for its output layer, while all
    activations are there. Layers that are one product have one together; experts of a group share one.
    """
    shapes: dict[tuple[int, ...], int] = {}
    for specs in _wiring(graph.structure).added:
        matrices = [spec for spec in specs if len(graph.specs[spec].shape) > 1]
        if matrices:
            shapes[tuple(sorted(matrices))] = sum(_matrix_bytes(graph.specs[spec]) for spec in matrices)
    return _allocate(MemoryUse.GRADIENTS, list(shapes.values()))


def _matrix_bytes(spec: Spec) -> int:
    """The size of a weight, or of one of the equal weights that are stored together."""
    return spec.bytes // (spec.shape[0] if len(spec.shape) == 3 else 1)


def _at_host(graph: Graph) -> tuple[Integers, Integers]:
    """For each buffer the call after which it is on the host and the one at which it is back, -1 if neither.

    A saved activation leaves after its last use in the forward pass, while the next block runs, and returns
    one block before it is used.
    """
    forward = _wiring(graph.structure).forward
    ahead = max(1, len(graph.calls) // max(1, len({unit_of(f"{call.module}.") for call in graph.calls})))
    last: dict[int, int] = {}
    first: dict[int, int] = {}
    for index, call in enumerate(graph.calls):
        for used in (*call.reads, *call.writes):
            if index < forward:
                last[used] = index
            else:
                first.setdefault(used, index)
    leaves, returns = np.full((2, len(graph.buffers)), -1)
    for index, buffer in enumerate(graph.buffers):
        if buffer.role is Role.ACTIVATION and buffer.born < forward and index in last and index in first:
            away = last[index] + ahead, first[index] - ahead
            if away[0] < away[1]:
                leaves[index], returns[index] = away
    return leaves, returns


def _workspaces(graph: Graph) -> Allocations:
    sizes = convolution_workspaces(graph)
    return _allocate(MemoryUse.WORKSPACE, list(sizes.values()), list(sizes), list(sizes))


def _gather_parameters(graph: Graph) -> Allocations:
    units = gather_units(graph)
    starts, ends = [unit.start for unit in units], [unit.end for unit in units]
    return _allocate(MemoryUse.PARAMETERS, [unit.bytes for unit in units], starts, ends)


def _of_others(graph: Graph, options: MemoryOptions) -> Iterator[Allocations]:
    """Activations of other micro-batches in flight, and outputs gathered from other devices."""
    if options.in_flight > 1:
        yield _allocate(MemoryUse.ACTIVATIONS, math.ceil((options.in_flight - 1) * saved_bytes(graph)))
    if options.gathered_bytes:
        yield _allocate(MemoryUse.TEMPORARIES, options.gathered_bytes)


def saved_bytes(graph: Graph) -> int:
    """Bytes of activations kept from the forward pass to the backward pass."""
    wiring, loss = _wiring(graph.structure), _fused_loss(graph)
    kept = wiring.roles[Role.ACTIVATION]
    kept = kept[(wiring.born[kept] < wiring.forward) & (wiring.dies[kept] >= wiring.forward)]
    kept = kept[~np.isin(kept, loss.inner) & (kept != loss.logits)]
    logits = graph.buffer_bytes(loss.logits) if loss.logits >= 0 else 0
    return int(_spec_bytes(graph)[wiring.specs[kept]].sum()) + logits
