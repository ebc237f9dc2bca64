"""The programs of pipeline stages, the optimal bounds of contiguous stages, and graphs without some calls.

**Programs** (`stage_programs`). A forward call belongs to the stage of its position, a backward call to that
of the forward call it differentiates, an optimizer call to every stage, on the tensors of the stage.

**Bounds** (`best_bounds`). The time and memory of a stage are separable in its bounds: stage s between bounds
i < j takes from[i] + to[j] and fits if needed[s][i] <= room[s][j]. The least time of the slowest stage is

    best[s][j] = min over i < j that fit of max(best[s-1][i], from[i] + to[j])          O(k n²), exact

It is computed in blocks that fit the cache. Stages slower than the best split on a coarse grid of bounds are
excluded, since no stage of the best split is slower.

**Pruning** (`prune`). A graph without calls and parameters that are on other devices.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretrain.prediction.strategies.division.shapes import find_updated, owners_of_states
from foretrain.prediction.strategies.program import Program
from foretrain.workloads.graph import Buffer, Call, Graph, Phase, Role

Stages = NDArray[np.int64]
"""The stage of each call; optimizer calls run on all stages."""


class Stage(NamedTuple):
    """The program of one stage, and the indices of its calls in the whole program."""

    program: Program
    calls: Stages


def stage_programs(program: Program, stage_of_call: Stages, stages: int) -> tuple[Stage, ...]:
    """The programs of all stages."""
    graph = program.graph
    owner = _owners(graph, stage_of_call)
    kept: list[dict[int, Call]] = [{} for _ in range(stages)]
    for index, (call, stage) in enumerate(zip(graph.calls, stage_of_call.tolist(), strict=True)):
        if call.phase is not Phase.OPTIMIZER:
            if stage < stages:
                kept[stage][index] = call
            continue
        for each in range(stages):
            mine = _restrict(call, owner, each)
            if mine is not None:
                kept[each][index] = mine
    return tuple(_stage(program, calls) for calls in kept)


def _stage(program: Program, calls: Mapping[int, Call]) -> Stage:
    """A program of some of the calls, by their index in the whole."""
    place = {index: number for number, index in enumerate(calls)}
    exchanges = tuple(
        exchange._replace(after=place[exchange.after], before=_next(exchange.before, place, len(calls)))
        for exchange in program.exchanges
        if exchange.after in place
    )
    part = replace(program, graph=_part(program.graph, list(calls.values()), place), exchanges=exchanges)
    return Stage(part, np.array(list(place), np.int64))


def _next(call: int, place: dict[int, int], count: int) -> int:
    """The new index of `call`, or of the first call after it that is kept."""
    last = next(reversed(place), -1)
    while call not in place and call <= last:
        call += 1
    return place.get(call, count)


def _owners(graph: Graph, stage_of_call: Stages) -> dict[int, int]:
    """The stage of every parameter, gradient and optimizer state, by its buffer.

    A parameter belongs to the first stage that reads it. The calls of the optimizer list their tensors in the
    order of the parameters.
    """
    owner: dict[int, int] = {}
    stage_of_name: dict[str, int] = {}
    for index, call in enumerate(graph.calls):
        if call.phase is Phase.OPTIMIZER:
            break
        for buffer in call.reads:
            read = graph.buffers[buffer]
            if read.role is Role.PARAMETER and buffer not in owner:
                owner[buffer] = int(stage_of_call[index])
                stage_of_name[read.name] = owner[buffer]
        for buffer in call.writes:
            written = graph.buffers[buffer]
            if written.role is Role.GRADIENT:
                owner[buffer] = stage_of_name.get(written.name, int(stage_of_call[index]))
    trained = [
        stage_of_name.get(buffer.name, 0)
        for buffer in graph.buffers
        if buffer.role is Role.PARAMETER and buffer.name in graph.trained_names
    ]
    for call in graph.calls:
        if call.phase is Phase.OPTIMIZER and trained and len(call.reads) % len(trained) == 0:
            for tensors in (call.reads, call.writes):
                for position, buffer in enumerate(tensors):
                    owner.setdefault(buffer, trained[position % len(trained)])
    return owner


def _restrict(call: Call, owner: Mapping[int, int], stage: int) -> Call | None:
    """An optimizer call on the tensors of one stage; None if it has none."""
    reads = tuple(buffer for buffer in call.reads if owner.get(buffer, stage) == stage)
    if not reads:
        return None
    writes = tuple(buffer for buffer in call.writes if owner.get(buffer, stage) == stage)
    first = [owner.get(buffer, stage) == stage for buffer in call.reads]
    lists = len(call.inputs) / len(call.writes) if call.writes else 0
    if lists and lists == int(lists) and len(call.reads) % len(call.writes) == 0:
        mine = first[: len(call.writes)]
        inputs = tuple(
            index for position, index in enumerate(call.inputs) if mine[position % len(call.writes)]
        )
        aligned = len(call.outputs) == len(call.writes)
        outputs = (
            tuple(index for index, is_mine in zip(call.outputs, mine, strict=True) if is_mine)
            if aligned
            else call.outputs
        )
        return call._replace(reads=reads, writes=writes, inputs=inputs, outputs=outputs)
    return call._replace(reads=reads, writes=writes)


def _part(graph: Graph, kept: list[Call], place: Mapping[int, int]) -> Graph:
    """The graph of some of the calls, with the buffers they read and write."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for index, call in enumerate(kept):
        for buffer in (*call.reads, *call.writes):
            first.setdefault(buffer, index)
            last[buffer] = index
    number: dict[int, int] = {}
    buffers: list[Buffer] = []
    for old in sorted(first):
        number[old] = len(buffers)
        life = _life(graph.buffers[old], first[old], last[old], place, (len(graph.calls), len(kept)))
        buffers.append(life)
    calls = tuple(
        call._replace(
            reads=tuple([number[buffer] for buffer in call.reads]),
            writes=tuple([number[buffer] for buffer in call.writes]),
            forward=None if call.forward is None else place.get(call.forward),
        )
        for call in kept
    )
    trained = graph.trained_names & {buffer.name for buffer in buffers if buffer.role is Role.PARAMETER}
    return replace(graph, calls=calls, buffers=tuple(buffers), trained=tuple(sorted(trained)))


def _life(buffer: Buffer, first: int, last: int, place: Mapping[int, int], counts: tuple[int, int]) -> Buffer:
    """The lifetime of a buffer in the calls of one stage; buffers of other stages live from their first use.

    `counts` are the numbers of calls of the whole step and of the stage.
    """
    calls, kept = counts
    born = -1 if buffer.born < 0 else place.get(buffer.born, first)
    dies = kept if buffer.dies >= calls else place.get(buffer.dies, last)
    return buffer._replace(born=born, dies=max(dies, born))


Floats = NDArray[np.float64]

_BLOCK = 64
"""Columns processed at a time: a block of 2,000 rows takes 1 MB."""

_GRID = 3
"""Coarse bounds per stage: enough to approximate the best split."""

_TIE = 1 + 1e-9
"""Times within this factor are equal."""

_NOT_BEFORE = np.tri(_BLOCK, dtype=bool)
"""Where rows and columns are the same bounds: entries with i >= j, which are no stages."""


@dataclass(frozen=True, eq=False)
class StageTerms:
    """Terms and `traffic` of a cut by bound (n + 1); `needed` and `room` by stage and bound."""

    time_from: Floats
    time_to: Floats
    traffic: Floats
    needed: Floats
    room: Floats

    def at(self, bounds: NDArray[np.int64]) -> StageTerms:
        """The terms of fewer bounds."""
        return StageTerms(
            self.time_from[bounds],
            self.time_to[bounds],
            self.traffic[bounds],
            self.needed[:, bounds],
            self.room[:, bounds],
        )

    def slowest(self, bounds: tuple[int, ...]) -> float:
        """Time of the slowest stage; infinite for an empty split."""
        return float(max((self.time_from[i] + self.time_to[j] for i, j in pairwise(bounds)), default=np.inf))


def best_bounds(terms: StageTerms) -> tuple[int, ...]:
    """The split with the fastest slowest stage, of those one with the least traffic; empty if none fits."""
    stages, count = terms.needed.shape
    limit = np.inf
    step = count // (_GRID * stages)
    if step > 1:
        grid = np.unique(np.append(np.arange(0, count, step), count - 1))
        coarse = terms.at(grid)
        limit = coarse.slowest(_search(coarse, np.inf, least_traffic=False))
    fastest = _search(terms, limit, least_traffic=False)
    if not fastest:
        return ()
    return _search(terms, terms.slowest(fastest) * _TIE, least_traffic=True)


def _search(terms: StageTerms, limit: float, *, least_traffic: bool) -> tuple[int, ...]:
    """The fastest split, or that with the least traffic, with stages that take at most `limit`."""
    stages, count = terms.needed.shape
    best = np.full(count, np.inf)
    best[0] = 0.0
    choices = np.zeros((stages, count), dtype=np.int64)
    for stage in range(stages):
        following = np.full(count, np.inf)
        # A stage leaves at least one position to each later stage; the last one leaves none.
        end = count - stages + stage + 1
        for start in range(count - 1 if stage == stages - 1 else stage + 1, end, _BLOCK):
            columns = slice(start, min(start + _BLOCK, end))
            first = _first_row(terms, stage, columns, limit)
            if first is None:
                continue
            cost = _costs(terms, stage, slice(first, columns.stop - 1), columns, limit, best, least_traffic)
            chosen = cost.argmin(axis=0)
            choices[stage, columns] = chosen + first
            following[columns] = cost[chosen, np.arange(cost.shape[1])]
        best = following
    if not np.isfinite(best[-1]):
        return ()
    bounds = [count - 1]
    for stage in reversed(range(stages)):
        bounds.append(int(choices[stage, bounds[-1]]))
    return tuple(reversed(bounds))


def _first_row(terms: StageTerms, stage: int, columns: slice, limit: float) -> int | None:
    """The first bound from which a stage to one of the columns is within the limit and fits."""
    rows = slice(0, columns.stop - 1)
    # The same sum as in `_costs`: another order of the terms may round to the other side of the limit.
    is_possible = terms.time_from[rows] + terms.time_to[columns].min() <= limit
    is_possible &= terms.needed[stage, rows] <= terms.room[stage, columns].max()
    first = int(is_possible.argmax())
    return first if is_possible[first] else None


def _costs(
    terms: StageTerms,
    stage: int,
    rows: slice,
    columns: slice,
    limit: float,
    best: Floats,
    least_traffic: bool,
) -> Floats:
    """The least cost of the stages up to this one, if it runs from each row to each column."""
    times: Floats = terms.time_from[rows, None] + terms.time_to[None, columns]
    if least_traffic:
        cost = best[rows, None] + terms.traffic[None, columns]
        cost[times > limit] = np.inf
    else:
        cost = np.maximum(times, best[rows, None])
    needed, room = terms.needed[stage, rows], terms.room[stage, columns]
    if needed.max() > room.min():
        cost[needed[:, None] > room[None, :]] = np.inf
    skipped = max(0, rows.start - columns.start)
    tail = cost[max(0, columns.start - rows.start) :]
    tail[_NOT_BEFORE[skipped : skipped + len(tail), : tail.shape[1]]] = np.inf
    return cost


class Pruned(NamedTuple):
    """The remaining graph, and the number of its calls before each former call (and the end)."""

    graph: Graph
    before: tuple[int, ...]


def prune(graph: Graph, calls: Collection[int], parameters: Collection[str]) -> Pruned:
    """Remove calls and parameters, the buffers only they use, and the updates of the parameters.

    Buffers that remaining calls read are kept, even if a removed call wrote them: another device sends them.
    """
    removed = _unused_buffers(graph, calls, parameters)
    kept = [
        (index, _without_operands(call, removed) if call.phase is Phase.OPTIMIZER else call)
        for index, call in enumerate(graph.calls)
        if index not in calls
    ]
    before = tuple(accumulate((index not in calls for index in range(len(graph.calls))), initial=0))
    number = {old: new for new, old in enumerate(i for i in range(len(graph.buffers)) if i not in removed)}
    remaining = replace(
        graph,
        calls=tuple(_renumber(call, number, before) for _, call in kept),
        buffers=tuple(_move(graph.buffers[old], before, len(graph.calls)) for old in number),
        layers=tuple(layer for layer in graph.layers if f"{layer.path}.weight" not in parameters),
        trained=tuple(name for name in graph.trained if name not in parameters),
    )
    return Pruned(remaining, before)


def _unused_buffers(graph: Graph, calls: Collection[int], parameters: Collection[str]) -> set[int]:
    """The buffers of removed parameters, and those that only removed calls read or write."""
    weights = (Role.PARAMETER, Role.CAST_WEIGHT, Role.GRADIENT)
    removed = {i for i, b in enumerate(graph.buffers) if b.role in weights and b.name in parameters}
    removed |= {state for state, owner in owners_of_states(graph).items() if owner in removed}
    by_removed: set[int] = set()
    used: set[int] = set()
    for index, call in enumerate(graph.calls):
        if call.phase is not Phase.OPTIMIZER:
            (by_removed if index in calls else used).update(call.reads, call.writes)
    return removed | (by_removed - used)


def _without_operands(call: Call, removed: set[int]) -> Call:
    """An update without removed tensors; buffers it writes for them are added to `removed`."""
    buffers = find_updated(call)
    places = [place for place, buffer in enumerate(buffers) if buffer not in removed]
    if len(places) == len(buffers):
        return call
    outputs = call.outputs
    if len(call.writes) == len(outputs):
        removed.update(call.writes[place] for place in range(len(outputs)) if buffers[place] in removed)
        outputs = tuple(outputs[place] for place in places if place < len(outputs))
    return call._replace(inputs=tuple(call.inputs[place] for place in places), outputs=outputs)


def _renumber(call: Call, number: dict[int, int], before: tuple[int, ...]) -> Call:
    return call._replace(
        reads=tuple(number[buffer] for buffer in call.reads if buffer in number),
        writes=tuple(number[buffer] for buffer in call.writes if buffer in number),
        forward=None if call.forward is None else before[call.forward],
    )


def _move(buffer: Buffer, before: tuple[int, ...], calls: int) -> Buffer:
    """A buffer with its lifetime in terms of the remaining calls."""
    born = buffer.born if buffer.born < 0 else before[buffer.born]
    dies = before[calls] if buffer.dies >= calls else max(born, before[buffer.dies + 1] - 1)
    return buffer._replace(born=born, dies=dies)
