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
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from foretrain.prediction.strategies.division.shapes import owners_of_states
from foretrain.prediction.strategies.program import MemoryOptions, is_of_expert, unit_of
from foretrain.prediction.strategies.sharded import gather_units
from foretrain.workloads.executed import ACTIVATIONS, OPTIMIZER, PARAMETERS, is_offloaded
from foretrain.workloads.graph import Call, Graph, Nature, Phase, Role, Spec
from foretrain.workloads.options import QUANTISED_BLOCK, QUANTISED_FROM, is_paged

_PRODUCTS = frozenset({"aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm"})
_FORWARD, _BACKWARD = "aten.convolution", "aten.convolution_backward"


class Convolution(NamedTuple):
    """The tensors of a convolution call, from the view of the forward pass."""

    input: Spec
    weight: Spec
    output: Spec
    groups: int

    @property
    def depthwise(self) -> bool:
        """One input channel per group."""
        return self.groups > 1 and self.weight.shape[1] == 1

    @property
    def pointwise(self) -> bool:
        """A kernel of size one."""
        return all(size == 1 for size in self.weight.shape[2:])


def convolution_workspaces(graph: Graph) -> Mapping[int, tuple[int, ...]]:
    """Workspace bytes of each convolution call: one entry forward, one for each gradient."""
    if graph.options.channels_last:
        return {}
    return {
        index: (transposed,) * _kernels(call)
        for index, call, convolution in _convolutions(graph)
        if (transposed := _transposed_bytes(convolution)) > 0
    }


def tuned_calls(graph: Graph) -> frozenset[int]:
    """The calls that cuDNN's benchmark mode tunes: the first of each size, except depthwise ones.

    After tuning a call, PyTorch empties the allocator's cache (Conv_v8.cpp).
    """
    first: dict[tuple[object, ...], int] = {}
    for index, call, convolution in _convolutions(graph):
        if not convolution.depthwise:
            first.setdefault((call.name, call.inputs, repr(call.settings)), index)
    return frozenset(first.values())


def first_products(graph: Graph) -> tuple[int, ...]:
    """The calls at which cuBLAS allocates its workspaces: the first products forward and backward."""
    first: dict[Phase, int] = {}
    for index, call in enumerate(graph.calls):
        if call.name in _PRODUCTS and call.phase is not Phase.OPTIMIZER:
            first.setdefault(call.phase, index)
    return tuple(first.values())


def uses_convolutions(graph: Graph) -> bool:
    """Whether the step loads cuDNN's convolution kernels."""
    return any(call.name == _FORWARD for call in graph.calls)


def _transposed_bytes(convolution: Convolution) -> int:
    if convolution.groups > 1 or convolution.pointwise:
        return 0
    return convolution.input.bytes + convolution.weight.bytes + convolution.output.bytes


def _kernels(call: Call) -> int:
    return 1 if call.name == _FORWARD else sum(map(bool, call.settings.get("output_mask", (True, True))[:2]))


def _convolutions(graph: Graph) -> Iterator[tuple[int, Call, Convolution]]:
    for index, call in enumerate(graph.calls):
        if call.name == _FORWARD:
            operands = (call.inputs[0], call.inputs[1], call.outputs[0])
        elif call.name == _BACKWARD:
            operands = (call.inputs[1], call.inputs[2], call.inputs[0])
        else:
            continue
        source, weight, target = (graph.specs[operand] for operand in operands)
        yield index, call, Convolution(source, weight, target, call.settings["groups"])


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


class Allocation(NamedTuple):
    """An allocation of a part, and the calls of a step it lives through.

    Parameters, gradients and optimizer state may be divided over `shards` devices.
    """

    part: MemoryUse
    bytes: int
    start: int = -1
    end: int = -1
    shards: int = 1


@dataclass(frozen=True)
class TensorLifetimes:
    """All allocations by their lifetime.

    `resident`: from before the first step. `state`: from the first optimizer step. `inputs`: from before a
    step until the next inputs have arrived. `passing`: from call `start` to call `end` of every step.
    `communication`: the same, on the streams of exchanges, whose memory other streams cannot reuse.
    `gradients`: the same, but they stay until zeroed if `end` is the number of calls. `handles` are the calls
    at which a library allocates a permanent workspace, `tuned` those after which the cache is emptied once.
    `paged_bytes` are of optimizer state that the driver moves to the host where the device runs short.
    """

    calls: int
    optimizer_start: int
    resident: tuple[Allocation, ...]
    state: tuple[Allocation, ...]
    inputs: tuple[Allocation, ...]
    passing: tuple[Allocation, ...]
    communication: tuple[Allocation, ...]
    gradients: tuple[Allocation, ...]
    handles: tuple[Allocation, ...]
    tuned: frozenset[int]
    paged_bytes: int = 0


_PART_OF_ROLE = {
    Role.PARAMETER: MemoryUse.PARAMETERS,
    Role.MODULE_BUFFER: MemoryUse.PARAMETERS,
    Role.INPUT: MemoryUse.INPUTS,
    Role.GRADIENT: MemoryUse.GRADIENTS,
    Role.OPTIMIZER_STATE: MemoryUse.OPTIMIZER_STATE,
    Role.CAST_WEIGHT: MemoryUse.CAST_WEIGHTS,
    Role.ACTIVATION: MemoryUse.ACTIVATIONS,
    Role.TEMPORARY: MemoryUse.TEMPORARIES,
}


def tensor_lifetimes(graph: Graph, options: MemoryOptions, cublas_workspace_bytes: int) -> TensorLifetimes:
    """The allocations of one device during a step."""
    by_role = _by_role(graph, options)
    optimizer_start = _optimizer_start(graph)
    sharded = {stage: options.zero_stage >= stage for stage in (1, 2, 3)}
    on_host = is_offloaded(graph, PARAMETERS)
    gathers = on_host or (sharded[3] and options.data_parallel * options.dense_shards > 1)
    scatters = sharded[2] and options.data_parallel * options.dense_shards > 1
    state = tuple(
        Allocation(
            allocation.part, _share(_state_bytes(graph, allocation, index, options), allocation, sharded[1])
        )
        for index, allocation in by_role[Role.OPTIMIZER_STATE]
    )
    parameters = tuple(
        allocation._replace(bytes=_share(allocation.bytes, allocation, sharded[3]))
        for _, allocation in by_role[Role.PARAMETER]
        if not on_host
    )
    gradients = [allocation for _, allocation in by_role[Role.GRADIENT]]
    lasting: list[Allocation] = []
    if graph.options.adds_up_in_fp32:  # accumulated and reduced in place: never freed
        lasting = [
            allocation._replace(bytes=_share(allocation.bytes, allocation, sharded[2]))
            for allocation in gradients
        ]
        gradients = []
    if is_offloaded(graph, OPTIMIZER):
        gradients = list(_until_copied(gradients, options))
    paged_bytes = 0
    if is_paged(graph.options.optimizer):
        paged_bytes, state = sum(allocation.bytes for allocation in state), ()
    return TensorLifetimes(
        paged_bytes=paged_bytes,
        calls=len(graph.calls),
        optimizer_start=optimizer_start,
        resident=(
            *parameters,
            *_allocations(by_role[Role.MODULE_BUFFER]),
            *lasting,
            *_lasting_buckets(gradients, options),
            *_unused_gradients(graph),
            *_of_others(graph, options),
        ),
        state=state,
        inputs=_allocations(by_role[Role.INPUT]),
        passing=(
            *_passing(graph, by_role, optimizer_start, options),
            *_workspaces(graph),
        ),
        communication=(
            *(_gather_parameters(graph) if gathers else ()),
            *(_reduce_buckets(gradients, options) if scatters else ()),
        ),
        gradients=tuple(_reduce_gradients(gradients, options) if scatters else gradients),
        handles=tuple(
            Allocation(MemoryUse.WORKSPACE, cublas_workspace_bytes, call, call)
            for call in first_products(graph)
        ),
        tuned=tuned_calls(graph) if options.tune_convolutions else frozenset(),
    )


def _share(size: int, allocation: Allocation, is_sharded: bool) -> int:
    """The bytes of one device, if `allocation.shards` devices divide an allocation."""
    return math.ceil(size / allocation.shards) if is_sharded else size


def _by_role(graph: Graph, options: MemoryOptions) -> dict[Role, list[tuple[int, Allocation]]]:
    by_role: dict[Role, list[tuple[int, Allocation]]] = {role: [] for role in Role}
    owners = owners_of_states(graph) if options.dense_shards > 1 else {}
    cast = {buffer.name for buffer in graph.buffers if buffer.role is Role.CAST_WEIGHT}
    for index, buffer in enumerate(graph.buffers):
        size = graph.specs[buffer.spec].bytes
        part = _PART_OF_ROLE[buffer.role]
        if buffer.role is Role.PARAMETER and buffer.name in cast:
            part = MemoryUse.MASTER_WEIGHTS
        if size:
            shards = options.data_parallel
            if options.dense_shards > 1 and not is_of_expert(graph.buffers[owners.get(index, index)].name):
                shards *= options.dense_shards
            by_role[buffer.role].append((index, Allocation(part, size, buffer.born, buffer.dies, shards)))
    return by_role


def _allocations(listed: Sequence[tuple[int, Allocation]]) -> tuple[Allocation, ...]:
    return tuple(allocation for _, allocation in listed)


def _optimizer_start(graph: Graph) -> int:
    calls = enumerate(graph.calls)
    return next((index for index, call in calls if call.phase is Phase.OPTIMIZER), len(graph.calls))


def _state_bytes(graph: Graph, allocation: Allocation, index: int, options: MemoryOptions) -> int:
    elements = graph.specs[graph.buffers[index].spec].elements
    if not options.eight_bit_optimizer or elements < QUANTISED_FROM:
        return allocation.bytes
    return elements + 4 * math.ceil(elements / QUANTISED_BLOCK)


def _passing(
    graph: Graph,
    by_role: dict[Role, list[tuple[int, Allocation]]],
    optimizer_start: int,
    options: MemoryOptions,
) -> Iterator[Allocation]:
    """Activations, temporaries and cast weights; an 8-bit optimizer updates in place in one kernel."""
    roles = [Role.ACTIVATION, Role.TEMPORARY]
    gathers_cast_weights = options.zero_stage == 3 and options.data_parallel * options.dense_shards > 1
    if not gathers_cast_weights and not is_offloaded(graph, PARAMETERS):
        roles.append(Role.CAST_WEIGHT)
    at_host = _at_host(graph) if is_offloaded(graph, ACTIVATIONS) else {}
    loss = _fused_loss(graph)
    for role in roles:
        for index, allocation in by_role[role]:
            if index in loss.inner:
                continue
            if index == loss.logits:
                yield allocation._replace(end=loss.end - 1)
            elif index in at_host:
                leaves, returns = at_host[index]
                yield allocation._replace(end=leaves)
                yield allocation._replace(start=returns)
            elif allocation.start < optimizer_start:
                yield allocation
            elif not options.eight_bit_optimizer:
                shards = options.data_parallel if options.zero_stage else 1
                yield allocation._replace(bytes=math.ceil(allocation.bytes / shards))


class _FusedLoss(NamedTuple):
    """A loss in one kernel: the buffers inside it that are never stored, the logits, and where it ends.

    The kernel computes in FP32 registers, keeps the logits in their own precision until the backward pass and
    writes their gradient in their place (Transformer Engine, `triton/cross_entropy.py`), also where the
    vocabulary is divided and the devices exchange maxima and sums.
    """

    inner: frozenset[int] = frozenset()
    logits: int = -1
    end: int = -1


def _fused_loss(graph: Graph) -> _FusedLoss:
    calls = [index for index, call in enumerate(graph.calls) if call.settings.get("part") == "loss"]
    if not calls or graph.calls[calls[0]].phase is not Phase.FORWARD:
        return _FusedLoss()
    first, last = calls[0], calls[-1]
    passing = (Role.ACTIVATION, Role.TEMPORARY)
    given = [index for index in graph.calls[first].reads if graph.buffers[index].role in passing]
    if not given or graph.calls[last].phase is not Phase.BACKWARD:
        return _FusedLoss()
    logits = max(given, key=graph.buffer_bytes)
    size = graph.specs[graph.buffers[logits].spec].elements
    inner = (
        index
        for index, buffer in enumerate(graph.buffers)
        if buffer.role in passing
        and first <= buffer.born < last
        and graph.specs[buffer.spec].elements >= size
    )
    return _FusedLoss(frozenset(inner), logits, last)


def _unused_gradients(graph: Graph) -> Iterator[Allocation]:
    """Gradients that a product returns to autograd after it has added to the FP32 gradient itself.

    Nothing is ever in them, but autograd wants one of the weight's shape and type. Transformer Engine makes
    one of each shape and keeps it (`get_dummy_wgrad`), Megatron makes one for its output layer, while all
    activations are there. Layers that are one product have one together; experts of a group share one.
    """
    weights = {buffer.name: buffer.spec for buffer in graph.buffers if buffer.role is Role.PARAMETER}
    shapes: dict[tuple[int, ...], int] = {}
    for call in graph.calls:
        if call.phase is not Phase.BACKWARD or call.nature is not Nature.OTHER:
            continue
        added = [graph.buffers[index] for index in call.writes if index in call.reads]
        specs = [weights[each.name] for each in added if each.role is Role.GRADIENT and each.name in weights]
        matrices = [spec for spec in specs if len(graph.specs[spec].shape) > 1]
        if matrices:
            shapes[tuple(sorted(matrices))] = sum(_matrix_bytes(graph.specs[spec]) for spec in matrices)
    yield from (Allocation(MemoryUse.GRADIENTS, size) for size in shapes.values())


def _matrix_bytes(spec: Spec) -> int:
    """The size of a weight, or of one of the equal weights that are stored together."""
    return spec.bytes // (spec.shape[0] if len(spec.shape) == 3 else 1)


def _at_host(graph: Graph) -> dict[int, tuple[int, int]]:
    """For each saved activation the call after which it is on the host, and the one at which it is back.

    It leaves after its last use in the forward pass, while the next block runs, and returns one block before
    it is used.
    """
    forward = sum(call.phase is Phase.FORWARD for call in graph.calls)
    ahead = max(1, len(graph.calls) // max(1, len({unit_of(f"{call.module}.") for call in graph.calls})))
    last: dict[int, int] = {}
    first: dict[int, int] = {}
    for index, call in enumerate(graph.calls):
        for used in (*call.reads, *call.writes):
            if index < forward:
                last[used] = index
            else:
                first.setdefault(used, index)
    away: dict[int, tuple[int, int]] = {}
    for index, buffer in enumerate(graph.buffers):
        if buffer.role is Role.ACTIVATION and buffer.born < forward and index in last and index in first:
            leaves, returns = last[index] + ahead, first[index] - ahead
            if leaves < returns:
                away[index] = (leaves, returns)
    return away


def _workspaces(graph: Graph) -> Iterator[Allocation]:
    for call, sizes in convolution_workspaces(graph).items():
        yield Allocation(MemoryUse.WORKSPACE, max(sizes), call, call)


def _gather_parameters(graph: Graph) -> Iterator[Allocation]:
    for unit in gather_units(graph):
        yield Allocation(MemoryUse.PARAMETERS, unit.bytes, unit.start, unit.end)


def _of_others(graph: Graph, options: MemoryOptions) -> Iterator[Allocation]:
    """Activations of other micro-batches in flight, and outputs gathered from other devices."""
    if options.in_flight > 1:
        yield Allocation(MemoryUse.ACTIVATIONS, math.ceil((options.in_flight - 1) * saved_bytes(graph)))
    if options.gathered_bytes:
        yield Allocation(MemoryUse.TEMPORARIES, options.gathered_bytes)


def saved_bytes(graph: Graph) -> int:
    """Bytes of activations kept from the forward pass to the backward pass."""
    end = sum(call.phase is Phase.FORWARD for call in graph.calls)
    loss = _fused_loss(graph)
    return sum(
        graph.specs[buffer.spec].bytes
        for index, buffer in enumerate(graph.buffers)
        if index == loss.logits
        or (buffer.role is Role.ACTIVATION and buffer.born < end <= buffer.dies and index not in loss.inner)
    )


def _lasting_buckets(gradients: Sequence[Allocation], options: MemoryOptions) -> Iterator[Allocation]:
    """The buckets of DistributedDataParallel, which hold a copy of all gradients."""
    if options.data_parallel == 1 or options.zero_stage >= 2:
        return
    for bucket in _buckets(gradients, options.bucket_bytes):
        yield Allocation(MemoryUse.BUCKETS, sum(allocation.bytes for allocation in bucket))


def _reduce_buckets(gradients: Sequence[Allocation], options: MemoryOptions) -> Iterator[Allocation]:
    """The flat copy of each bucket, which lives until the next bucket is full."""
    buckets = list(_buckets(gradients, options.bucket_bytes))
    for bucket, after in zip(buckets, [*buckets[1:], *buckets[-1:]], strict=True):
        size = sum(allocation.bytes for allocation in bucket)
        yield Allocation(MemoryUse.BUCKETS, size, bucket[-1].start, after[-1].start)


def _reduce_gradients(gradients: Sequence[Allocation], options: MemoryOptions) -> Iterator[Allocation]:
    """Gradients in full until their bucket is full, then the share of this device."""
    for bucket in _buckets(gradients, options.bucket_bytes):
        closed = bucket[-1].start
        for allocation in bucket:
            yield allocation._replace(end=closed)
            share = math.ceil(allocation.bytes / allocation.shards)
            yield Allocation(MemoryUse.GRADIENTS, share, closed, allocation.end)


def _until_copied(gradients: Sequence[Allocation], options: MemoryOptions) -> Iterator[Allocation]:
    """Gradients that live until their bucket is full and copied to the host."""
    for bucket in _buckets(gradients, options.bucket_bytes):
        for allocation in bucket:
            yield allocation._replace(end=bucket[-1].start)


def _buckets(gradients: Sequence[Allocation], bucket_bytes: int) -> Iterator[list[Allocation]]:
    """Gradients in the order they appear, in groups of at least `bucket_bytes`."""
    bucket: list[Allocation] = []
    for allocation in sorted(gradients, key=lambda allocation: allocation.start):
        bucket.append(allocation)
        if sum(item.bytes for item in bucket) >= bucket_bytes:
            yield bucket
            bucket = []
    if bucket:
        yield bucket
