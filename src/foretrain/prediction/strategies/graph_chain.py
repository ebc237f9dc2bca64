"""A recorded training step as a chain of positions that can be cut between stages.

A position is one forward call together with the views and weight casts that lead to it, so no cut separates a
weight from its use. Then

* a backward call belongs to the position of the call it differentiates, a recomputed one to that it repeats;
* a parameter belongs to the first position that reads it; a tied one is charged at each module that reads it,
  since a cut between them makes a copy, and is named in `Chain.tied`;
* an activation that the backward pass reads is charged where it was computed;
* a cut is crossed by what was computed before it and is read after it, once. Inputs do not cross: labels and
  masks are handed to the stage that reads them;
* an optimizer call is shared out in proportion to the bytes of the parameters.

What lives only within a stage's own forward or backward pass (temporaries) is left out of the memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from foretrain.errors import InvalidRequest
from foretrain.prediction.strategies.layer_cuts import Chain
from foretrain.workloads.graph import Call, Graph, Nature, Phase, Role

_WEIGHTS = frozenset({Role.PARAMETER, Role.CAST_WEIGHT})
_NOT_SENT = _WEIGHTS | {Role.MODULE_BUFFER, Role.INPUT, Role.OPTIMIZER_STATE}


def chain_of(graph: Graph, seconds: Sequence[float]) -> Chain:
    """The chain of a graph whose calls take the given times."""
    if len(seconds) != len(graph.calls):
        raise InvalidRequest(f"{len(seconds)} times for {len(graph.calls)} calls; give one for each call")
    position_of = positions_of_calls(graph)
    if not position_of:
        raise InvalidRequest("a graph without a forward pass has no layers to cut between")
    count = position_of[-1] + 1
    forward, backward = np.zeros(count), np.zeros(count)
    np.add.at(forward, position_of, np.asarray(seconds, dtype=np.float64)[: len(position_of)])
    for index, position in _backward_positions(graph, position_of).items():
        backward[position] += seconds[index]
    parameters, tied = _parameters(graph, position_of, count)
    share = parameters / parameters.sum() if parameters.any() else np.full(count, 1 / count)
    updating = (seconds[i] for i, call in enumerate(graph.calls) if call.phase is Phase.OPTIMIZER)
    return Chain(
        forward_seconds=forward,
        backward_seconds=backward,
        parameter_bytes=parameters,
        saved_bytes=_saved(graph, position_of, count),
        crossing_bytes=_crossing(graph, position_of, count),
        optimizer_seconds=share * sum(updating),
        names=_names(graph, position_of, count),
        tied=tied,
    )


def positions_of_calls(graph: Graph) -> list[int]:
    """The position of each forward call, in order; views and weight casts go with the next that works."""
    positions: list[int] = []
    position = 0
    works = False
    for call in graph.calls:
        if call.phase is not Phase.FORWARD:
            break
        positions.append(position)
        works = not _leads_to_another(graph, call)
        position += works
    if positions and not works and position:
        last = position - 1
        positions = [min(one, last) for one in positions]
    return positions


def _leads_to_another(graph: Graph, call: Call) -> bool:
    if call.nature is Nature.VIEW:
        return True
    return bool(call.writes) and all(graph.buffers[buffer].role is Role.CAST_WEIGHT for buffer in call.writes)


def _backward_positions(graph: Graph, position_of: Sequence[int]) -> dict[int, int]:
    """The position of each backward call; one that says nothing goes with the backward call before it."""
    repeats = _Repeats(graph, position_of)
    found: dict[int, int] = {}
    position = position_of[-1]
    for index, call in enumerate(graph.calls):
        if call.phase is not Phase.BACKWARD:
            continue
        if call.recomputed:
            position = repeats.position(call, position)
        elif call.forward is not None and call.forward < len(position_of):
            position = position_of[call.forward]
        found[index] = position
    return found


class _Repeats:
    """Which forward call a recomputed call repeats: the n-th of its name in its module."""

    def __init__(self, graph: Graph, position_of: Sequence[int]) -> None:
        self._forward: dict[tuple[str, str], list[int]] = {}
        self._seen: Counter[tuple[str, str]] = Counter()
        for call, position in zip(graph.calls, position_of, strict=False):
            self._forward.setdefault((call.module, call.name), []).append(position)

    def position(self, call: Call, otherwise: int) -> int:
        key = (call.module, call.name)
        known = self._forward.get(key)
        if known is None:
            return otherwise
        turn = self._seen[key]
        self._seen[key] += 1
        return known[turn % len(known)]


def _parameters(
    graph: Graph, position_of: Sequence[int], count: int
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Bytes of parameters by position, and the names of those that several modules read."""
    readers: dict[int, dict[str, int]] = {}
    for call, position in zip(graph.calls, position_of, strict=False):
        if call.nature is Nature.VIEW:
            continue
        for buffer in call.reads:
            if graph.buffers[buffer].role is Role.PARAMETER:
                readers.setdefault(buffer, {}).setdefault(call.module, position)
    held = np.zeros(count)
    for buffer, modules in readers.items():
        for position in set(modules.values()):
            held[position] += graph.buffer_bytes(buffer)
    tied = (buffer for buffer, modules in readers.items() if len(set(modules.values())) > 1)
    return held, tuple(graph.buffers[buffer].name for buffer in tied)


def _saved(graph: Graph, position_of: Sequence[int], count: int) -> NDArray[np.float64]:
    """Bytes of the activations that some backward call reads, by the position that computed them."""
    read_again = {buffer for call in graph.calls if call.phase is Phase.BACKWARD for buffer in call.reads}
    held = np.zeros(count)
    for index in read_again:
        buffer = graph.buffers[index]
        if buffer.role not in _NOT_SENT and 0 <= buffer.born < len(position_of):
            held[position_of[buffer.born]] += graph.buffer_bytes(index)
    return held


def _crossing(graph: Graph, position_of: Sequence[int], count: int) -> NDArray[np.float64]:
    """Bytes over the cut after each position: a buffer's, from where it is computed to its last reader."""
    last_read: dict[int, int] = {}
    for call, position in zip(graph.calls, position_of, strict=False):
        last_read.update(dict.fromkeys(call.reads, position))
    change = np.zeros(count)
    for index, last in last_read.items():
        buffer = graph.buffers[index]
        if buffer.role not in _NOT_SENT and buffer.born >= 0:
            change[position_of[buffer.born]] += graph.buffer_bytes(index)
            change[last] -= graph.buffer_bytes(index)
    return np.cumsum(change)[:-1]


def _names(graph: Graph, position_of: Sequence[int], count: int) -> tuple[str, ...]:
    """The module of each position's working call."""
    names = [""] * count
    for call, position in zip(graph.calls, position_of, strict=False):
        names[position] = call.module
    return tuple(names)


def position_of_every_call(graph: Graph) -> NDArray[np.int64]:
    """The position of each call; -1 for those of the optimizer, which every position has a share of."""
    forward = positions_of_calls(graph)
    found = np.full(len(graph.calls), -1, dtype=np.int64)
    found[: len(forward)] = forward
    for index, position in _backward_positions(graph, forward).items():
        found[index] = position
    return found
