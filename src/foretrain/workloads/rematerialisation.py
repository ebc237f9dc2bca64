"""Which activations a compiled step saves, and which it recomputes in the backward pass.

`torch.compile` partitions forward and backward pass by a minimum cut. Every tensor of the forward pass is a
node with the cost of saving it; the cheapest set of tensors from which the backward pass can be computed is
saved, and what lies between that set and the backward pass is recomputed inside the backward kernels. The
rules are those of `torch._functorch.partitioners.min_cut_rematerialization_partition` (PyTorch 2.13, default
settings). Never recomputed are

* results of operators that are not fused: products, convolutions, attention, look-ups, sorts ...;
* random numbers, and what a reduction makes at least four times smaller, such as the statistics of norms;
* what an unfused backward operator reads, since recomputing would write it to memory;
* a fused use of a tensor that follows an unfused operator behind another of its uses: the sums of residual
  connections, of which recomputing one would require all before it.

Saving a tensor costs its bytes · 1.1^(calls to the backward pass), twice that if it lies inside a fused
kernel and would not be written otherwise; parameters are free. Operators of several results (norms, dropout)
recompute the first from the others. Backward operators that need only the sign of a tensor read a mask, which
may be saved in its place; those that need only a shape read nothing; pooling saves one-byte offsets.

Differences to PyTorch, which cuts the graph of decomposed operators: two numbers for each row of a recomputed
softmax are not counted, and chains of over 100 recomputed operators are not interrupted. Saved bytes are
within 0.5 % of PyTorch's for the modules of `python -m tests.support.partitioned`. A recomputation by
activation checkpointing counts as an operator that is not fused: what it reads is saved.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import NamedTuple

from foretrain.workloads.graph import NO_TENSOR, Buffer, Call, Graph, Nature, Phase, Role

_ALSO_RECOMPUTED = frozenset(
    (
        "aten.index aten.gather aten.arange aten.full aten.zeros aten.ones aten.new_zeros aten.new_ones "
        "aten.new_full aten.scalar_tensor aten.tril aten.triu"
    ).split()
)
"""Operators that are kernels of their own here, and that PyTorch recomputes."""

_JOINS_ITS_INPUTS = frozenset({"aten.cat", "aten.stack"})
"""Operators that are fused with what they read, not with what reads them."""

_SHAPE_ONLY = {
    "aten.nll_loss_backward": 1,
    "aten.nll_loss2d_backward": 1,
    "aten.max_pool2d_with_indices_backward": 1,
}
"""Backward operators with the position of a tensor of which they need the shape alone."""

_BY_MASK = {"aten.threshold_backward": 1, "aten.hardtanh_backward": 1, "aten.leaky_relu_backward": 1}
"""Backward operators with the position of a tensor of which they need one bit for each element."""

_POOLING = "aten.max_pool2d_with_indices"
_POOLING_BACKWARD = "aten.max_pool2d_with_indices_backward"
_OFFSET = "int8"
"""Compiled pooling saves offsets in the window, eager pooling eight-byte indices of the image."""

# The constants of PyTorch's partitioner: see the module's text.
_BIAS_PER_CALL = 1.1
_FARTHEST = 100
_REDUCTION = 4
_FREE = (Role.PARAMETER, Role.MODULE_BUFFER)


_BEFORE_THE_STEP = -1


@dataclass(frozen=True, eq=False)
class Rematerialisation:
    """A graph whose backward calls read what they recompute from.

    `added` has the operators that a call computes besides its own, by the index of the call. The last specs
    of the graph are new: those of `retyped`, each a spec of the eager graph in another dtype.
    """

    graph: Graph
    added: Mapping[int, tuple[str, ...]]
    retyped: tuple[tuple[int, str], ...] = ()


def plan_recomputation(graph: Graph, unfused: Set[int], random: Set[int]) -> Rematerialisation:
    """The step with the activations that a compiled one saves.

    Calls `unfused` are kernels of their own; calls `random` return random numbers only.
    """
    if not any(call.phase is Phase.BACKWARD for call in graph.calls):
        return Rematerialisation(graph, {})
    forward = _forward(_decompose(graph, unfused), unfused, random)
    saved = _minimum_cut(forward, _never_recomputed(forward), _costs(forward))
    return _apply(forward, saved)


def with_retyped_specs(graph: Graph, retyped: Sequence[tuple[int, str]]) -> Graph:
    """The graph with more specs: some of its own in another dtype."""
    more = tuple(graph.specs[spec]._replace(dtype=dtype) for spec, dtype in retyped)
    return replace(graph, specs=(*graph.specs, *more))


@dataclass(frozen=True, eq=False)
class _Decomposed:
    """A graph whose backward calls read no more than decomposed operators do: no tensor for its shape, masks
    in place of what they are made of (`masks`: buffer by buffer), and narrow offsets."""

    graph: Graph
    masks: Mapping[int, int]
    retyped: tuple[tuple[int, str], ...]


def _decompose(graph: Graph, unfused: Set[int]) -> _Decomposed:
    calls, buffers = list(graph.calls), list(graph.buffers)
    masks: dict[int, int] = {}
    retyped: dict[tuple[int, str], int] = {}

    def in_dtype(spec: int, dtype: str) -> int:
        return retyped.setdefault((spec, dtype), len(graph.specs) + len(retyped))

    for index, call in enumerate(graph.calls):
        if call.name in _SHAPE_ONLY:
            calls[index] = call = call._replace(reads=_without(call.reads, _SHAPE_ONLY[call.name]))
        if call.name == _POOLING:
            narrow = in_dtype(call.outputs[1], _OFFSET)
            calls[index] = call._replace(outputs=(call.outputs[0], narrow))
            buffers[call.writes[1]] = buffers[call.writes[1]]._replace(spec=narrow)
        elif call.name == _POOLING_BACKWARD:
            calls[index] = call._replace(inputs=(*call.inputs[:-1], in_dtype(call.inputs[-1], _OFFSET)))
        elif call.name in _BY_MASK and (made_by := _masking_call(graph, call, unfused)) is not None:
            position, mask = _BY_MASK[call.name], len(buffers)
            masks[mask] = call.reads[position]
            buffers.append(Buffer(in_dtype(call.inputs[position], "bool"), made_by, index, Role.ACTIVATION))
            calls[index] = call._replace(reads=(*_without(call.reads, position), mask))
            calls[made_by] = calls[made_by]._replace(writes=(*calls[made_by].writes, mask))
    whole = with_retyped_specs(graph, tuple(retyped))
    return _Decomposed(replace(whole, calls=tuple(calls), buffers=tuple(buffers)), masks, tuple(retyped))


def _masking_call(graph: Graph, call: Call, unfused: Set[int]) -> int | None:
    """The fused forward call that can write the mask for a backward call, if there is one."""
    if call.forward is None or call.forward in unfused:
        return None
    forward = graph.calls[call.forward]
    is_there = call.reads[_BY_MASK[call.name]] in (*forward.reads, *forward.writes)
    return call.forward if forward.phase is Phase.FORWARD and is_there else None


def _without(items: tuple[int, ...], position: int) -> tuple[int, ...]:
    return items[:position] + items[position + 1 :]


class _Tensor(NamedTuple):
    """A value that a buffer has in the forward pass; a call that works in place gives it another one.

    `sources` are the tensors that it can be recomputed from, None if its operator is never recomputed.
    """

    buffer: int
    call: int
    sources: tuple[int, ...] | None


@dataclass(frozen=True, eq=False)
class _Forward:
    """The forward pass: its tensors in the order they are made, each with the forward calls that use it and
    the backward calls that read it; `made_by` are the tensors a call makes, `fuses` the calls that fuse."""

    decomposed: _Decomposed
    end: int
    tensors: Sequence[_Tensor]
    users: Sequence[Sequence[int]]
    readers: Sequence[Sequence[int]]
    made_by: Mapping[int, Sequence[int]]
    fuses: Set[int]

    @property
    def graph(self) -> Graph:
        """The step."""
        return self.decomposed.graph

    def fuse(self, producer: int, user: int) -> bool:
        """Whether what call `producer` makes need not be in memory for call `user` to read it."""
        if self.graph.calls[user].name in _JOINS_ITS_INPUTS:
            return True
        return producer in self.fuses and user in self.fuses


def _forward(decomposed: _Decomposed, unfused: Set[int], random: Set[int]) -> _Forward:
    graph, masks = decomposed.graph, decomposed.masks
    end = sum(call.phase is Phase.FORWARD for call in graph.calls)
    fuses = {
        index
        for index, call in enumerate(graph.calls)
        if (index not in unfused or call.name in _ALSO_RECOMPUTED) and not call.recomputed
    }
    tensors: list[_Tensor] = []
    users: list[list[int]] = []
    made_by: dict[int, list[int]] = {}
    value: dict[int, int] = {}

    def make(tensor: _Tensor) -> int:
        value[tensor.buffer] = len(tensors)
        tensors.append(tensor)
        users.append([])
        return value[tensor.buffer]

    for index, call in enumerate(graph.calls[:end]):
        if not call.writes or (call.nature is Nature.VIEW and set(call.writes) <= set(call.reads)):
            continue
        for buffer in call.reads:
            if buffer not in value:
                make(_Tensor(buffer, _BEFORE_THE_STEP, None))
        sources = [value[buffer] for buffer in call.reads]
        for source in sources:
            users[source].append(index)
        others = [make(_Tensor(buffer, index, None)) for buffer in call.writes[1:] if buffer not in masks]
        is_recomputable = index in fuses and index not in random and _may_recompute(graph, call)
        first = make(_Tensor(call.writes[0], index, (*sources, *others) if is_recomputable else None))
        made_by[index] = [first, *others]
        for buffer in masks.keys() & call.writes:
            make(_Tensor(buffer, index, (value[masks[buffer]],)))
    readers = _readers(graph.calls, end, value, len(tensors))
    return _Forward(decomposed, end, tensors, users, readers, made_by, fuses)


def _readers(calls: Sequence[Call], end: int, value: Mapping[int, int], tensors: int) -> list[list[int]]:
    """The calls behind the forward pass that read each tensor."""
    readers: list[list[int]] = [[] for _ in range(tensors)]
    for index, call in enumerate(calls[end:], end):
        for buffer in call.reads:
            if buffer in value:
                readers[value[buffer]].append(index)
    return readers


def _may_recompute(graph: Graph, call: Call) -> bool:
    """Whether the first result of a fused call may be recomputed: it is no reduction, and only passing."""
    result = graph.buffers[call.writes[0]]
    if result.role not in (Role.ACTIVATION, Role.TEMPORARY):
        return False
    operands = sum(graph.specs[spec].bytes for spec in call.inputs if spec != NO_TENSOR)
    made = graph.specs[call.outputs[0]] if call.outputs else graph.specs[result.spec]
    return result.dies < len(graph.calls) and _REDUCTION * made.bytes >= operands


def _never_recomputed(forward: _Forward) -> set[int]:
    """Tensors that are not recomputed: by their operator, as unfused backward calls read them, or as they are
    used behind an unfused call."""
    fixed = {number for number, tensor in enumerate(forward.tensors) if tensor.sources is None}
    for number, tensor in enumerate(forward.tensors):
        if any(not forward.fuse(tensor.call, reader) for reader in forward.readers[number]):
            fixed.add(number)
        users = forward.users[number]
        if len(users) > 1:
            nearest = _first_unfused(forward, users)
            for user in users:
                if user > nearest and forward.fuse(tensor.call, user):
                    fixed.update(forward.made_by.get(user, ()))
    return fixed


def _first_unfused(forward: _Forward, users: Sequence[int]) -> int:
    """The first call behind `users` that cannot be fused with what it reads, at most the last of them."""
    last = max(users)
    pending = [(user, True) for user in users]
    heapq.heapify(pending)
    known = set(pending)
    while pending:
        call, is_fused = heapq.heappop(pending)
        if not is_fused:
            return call
        for made in forward.made_by.get(call, ()):
            for user in forward.users[made]:
                entry = (user, forward.fuse(call, user))
                if user <= last and entry not in known:
                    known.add(entry)
                    heapq.heappush(pending, entry)
    return last


def _costs(forward: _Forward) -> list[int]:
    """What saving each tensor costs: bytes, biased to tensors near the backward pass."""
    graph = forward.graph
    distance = [_FARTHEST] * len(forward.tensors)
    costs = [0] * len(forward.tensors)
    masks: defaultdict[int, list[int]] = defaultdict(list)
    for number, tensor in enumerate(forward.tensors):
        if tensor.buffer in forward.decomposed.masks:
            masks[(tensor.sources or ())[0]].append(number)
    for number in range(len(forward.tensors) - 1, -1, -1):
        tensor = forward.tensors[number]
        users = forward.users[number]
        behind = [distance[made] for user in users for made in forward.made_by.get(user, ())]
        behind += [distance[mask] for mask in masks.get(number, ())]
        distance[number] = 1 if forward.readers[number] else min([_FARTHEST, *(1 + far for far in behind)])
        if graph.buffers[tensor.buffer].role not in _FREE:
            is_inside = all(forward.fuse(tensor.call, user) for user in (*users, *forward.readers[number]))
            size = graph.buffer_bytes(tensor.buffer) * _BIAS_PER_CALL ** distance[number]
            costs[number] = int(size) * (2 if is_inside else 1)
    return costs


def _minimum_cut(forward: _Forward, fixed: Set[int], costs: Sequence[int]) -> set[int]:
    """The tensors to save: the cheapest that separate the fixed tensors from the backward pass.

    Fixed tensors that the backward pass reads are saved in any case. For the others, tensor t is an edge from
    2t to 2t + 1 with its cost as capacity. Flow is sent from one fixed tensor after the other along shortest
    paths: once no path leads from one to the sink, none ever will, so each search stays near its start.
    """
    needed = [number for number, readers in enumerate(forward.readers) if readers]
    saved = {number for number in needed if number in fixed}
    sink = 2 * len(forward.tensors)
    capacity: defaultdict[int, dict[int, float]] = defaultdict(dict)

    def join(start: int, to: int, size: float) -> None:
        capacity[start][to] = size
        capacity[to].setdefault(start, 0)

    wanted = [number for number in needed if number not in fixed]
    for number in wanted:
        join(2 * number + 1, sink, math.inf)
    starts: list[int] = []
    known = set(wanted)
    while wanted:
        number = wanted.pop()
        join(2 * number, 2 * number + 1, costs[number])
        if number in fixed:
            starts.append(2 * number)
            continue
        for source in forward.tensors[number].sources or ():
            if source in saved:
                continue
            join(2 * source + 1, 2 * number, math.inf)
            if source not in known:
                known.add(source)
                wanted.append(source)
    for start in sorted(starts):
        _send_flow(capacity, start, sink)
    before_sink = _leading_to(capacity, sink)
    return saved | {t for t in known if 2 * t not in before_sink and 2 * t + 1 in before_sink}


def _send_flow(capacity: Mapping[int, dict[int, float]], start: int, sink: int) -> None:
    """Send as much flow as possible, along shortest paths (Edmonds and Karp 1972)."""
    while True:
        came_from = {start: start}
        queue = deque([start])
        while queue and sink not in came_from:
            node = queue.popleft()
            for to, left in capacity[node].items():
                if left > 0 and to not in came_from:
                    came_from[to] = node
                    queue.append(to)
        if sink not in came_from:
            return
        path = []
        node = sink
        while node != start:
            path.append((came_from[node], node))
            node = came_from[node]
        sent = min(capacity[one][other] for one, other in path)
        for one, other in path:
            capacity[one][other] -= sent
            capacity[other][one] += sent


def _leading_to(capacity: Mapping[int, dict[int, float]], sink: int) -> set[int]:
    """The nodes with a path to the sink that has capacity left, and the sink."""
    leading = {sink}
    queue = deque([sink])
    while queue:
        node = queue.popleft()
        for other in capacity[node]:
            if other not in leading and capacity[other][node] > 0:
                leading.add(other)
                queue.append(other)
    return leading


def _apply(forward: _Forward, saved: Set[int]) -> Rematerialisation:
    """Let backward calls read what they recompute from, and end the lives of what they no longer read."""
    graph, end, masks = forward.graph, forward.end, forward.decomposed.masks
    calls = list(graph.calls)
    added: dict[int, dict[int, None]] = {}
    origins = _origins(forward, saved)
    for number, origin in origins.items():
        buffer, made_by, _ = forward.tensors[number]
        instead = [forward.tensors[source].buffer for source in origin.tensors]
        for reader in forward.readers[number]:
            kept = [read for read in calls[reader].reads if read != buffer]
            calls[reader] = calls[reader]._replace(reads=tuple(dict.fromkeys([*kept, *instead])))
            if origin.calls:
                added.setdefault(reader, {}).update(dict.fromkeys(origin.calls))
        if buffer in masks:
            writes = tuple(each for each in calls[made_by].writes if each != buffer)
            calls[made_by] = calls[made_by]._replace(writes=writes)
    for number in saved:
        if forward.tensors[number].buffer in masks:
            added.setdefault(forward.tensors[number].call, {})
    last_use = {buffer: index for index, call in enumerate(calls) for buffer in (*call.reads, *call.writes)}
    buffers = tuple(
        _until(buffer, last_use.get(index, buffer.born), end, len(calls))
        for index, buffer in enumerate(graph.buffers)
    )
    return Rematerialisation(
        replace(graph, calls=tuple(calls), buffers=buffers),
        {index: tuple(graph.calls[call].name for call in sorted(others)) for index, others in added.items()},
        forward.decomposed.retyped,
    )


class _Origin(NamedTuple):
    """The saved tensors that a tensor is recomputed from, and the calls that recompute it."""

    tensors: tuple[int, ...]
    calls: tuple[int, ...]


def _origins(forward: _Forward, saved: Set[int]) -> Mapping[int, _Origin]:
    """What the recomputed tensors are recomputed from."""
    pending = [number for number, readers in enumerate(forward.readers) if readers and number not in saved]
    recomputed = set(pending)
    while pending:
        sources = forward.tensors[pending.pop()].sources
        assert sources is not None, "the cut left a tensor that is neither saved nor recomputed"
        new = {source for source in sources if source not in saved} - recomputed
        recomputed |= new
        pending += new
    origins: dict[int, _Origin] = {}
    for number in sorted(recomputed):
        tensor = forward.tensors[number]
        assert tensor.sources is not None
        behind = [origins.get(source, _Origin((source,), ())) for source in tensor.sources]
        own = () if tensor.buffer in forward.decomposed.masks else (tensor.call,)
        origins[number] = _Origin(
            tuple(dict.fromkeys(each for origin in behind for each in origin.tensors)),
            tuple(dict.fromkeys([*(each for origin in behind for each in origin.calls), *own])),
        )
    return origins


def _until(buffer: Buffer, last_use: int, end: int, calls: int) -> Buffer:
    """A buffer of the forward pass as compiled code frees it: after its last use."""
    if buffer.role not in (Role.ACTIVATION, Role.TEMPORARY) or buffer.dies >= calls or buffer.born >= end:
        return buffer
    role = Role.ACTIVATION if last_use >= end else Role.TEMPORARY
    return buffer._replace(dies=last_use, role=role)
