"""Stages.

One stage of a pipeline as a program of its own: its calls, and the memory they use.

A forward call belongs to the stage its position was cut into, a backward call to that of the forward call it
differentiates, an optimizer call to every stage, on that stage's tensors.

The best split of a line into contiguous stages, when a stage's time and need are separable in its bounds.

Stage s between bounds i < j takes from[i] + to[j] and fits if needed[s][i] <= room[s][j]. The least time of
the slowest stage follows from

    best[s][j] = min over i < j that fit of max(best[s-1][i], from[i] + to[j])          O(k n²), exact

It is computed in blocks that stay in the cache; stages slower than the best split on a coarse grid of bounds
are left out from the start, since no stage of the best split is.

A step's graph without some of its calls and parameters, which other devices have.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretrain.prediction.strategies.division.optimizer_states import owners_of_states, updated
from foretrain.prediction.strategies.program import Program
from foretrain.workloads.graph import Buffer, Call, Graph, Phase, Role

Stages = NDArray[np.int64]
"""For each call the stage that runs it; optimizer calls are run by all."""


class Stage(NamedTuple):
    """What one stage runs of a program, and where its calls stand in the whole."""

    program: Program
    calls: Stages


def stage_programs(program: Program, stage_of_call: Stages, stages: int) -> tuple[Stage, ...]:
    """What each of some stages runs of a program."""
    graph = program.graph
    owner = _owners(graph, stage_of_call)
    kept: list[dict[int, Call]] = [{} for _ in range(stages)]
    for index, (call, stage) in enumerate(zip(graph.calls, stage_of_call.tolist(), strict=True)):
        if call.phase is not Phase.OPTIMIZER:
            if stage < stages:
                kept[stage][index] = call
            continue
        for each in range(stages):
            mine = _restricted(call, owner, each)
            if mine is not None:
                kept[each][index] = mine
    return tuple(_stage(program, calls) for calls in kept)


def _stage(program: Program, calls: Mapping[int, Call]) -> Stage:
    """A program of some of the calls, given by their place in the whole."""
    place = {index: number for number, index in enumerate(calls)}
    exchanges = tuple(
        exchange._replace(after=place[exchange.after], before=_next(exchange.before, place, len(calls)))
        for exchange in program.exchanges
        if exchange.after in place
    )
    part = replace(program, graph=_part(program.graph, list(calls.values()), place), exchanges=exchanges)
    return Stage(part, np.array(list(place), np.int64))


def _next(call: int, place: dict[int, int], count: int) -> int:
    """The first kept call that is not before `call`."""
    last = next(reversed(place), -1)
    while call not in place and call <= last:
        call += 1
    return place.get(call, count)


def _owners(graph: Graph, stage_of_call: Stages) -> dict[int, int]:
    """The stage of every parameter, gradient and optimizer state, by its buffer.

    A parameter belongs to the first stage that reads it. State follows the parameters' order, in which the
    optimizer's calls list their tensors.
    """
    owner: dict[int, int] = {}
    stage_of_name: dict[str, int] = {}
    for index, call in enumerate(graph.calls):
        if call.phase is Phase.OPTIMIZER:
            break
        for buffer in call.reads:
            found = graph.buffers[buffer]
            if found.role is Role.PARAMETER and buffer not in owner:
                owner[buffer] = int(stage_of_call[index])
                stage_of_name[found.name] = owner[buffer]
        for buffer in call.writes:
            found = graph.buffers[buffer]
            if found.role is Role.GRADIENT:
                owner[buffer] = stage_of_name.get(found.name, int(stage_of_call[index]))
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


def _restricted(call: Call, owner: Mapping[int, int], stage: int) -> Call | None:
    """An optimizer call on the tensors of one stage, or None if it has none of them."""
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
    """The graph of some of the calls, with the buffers they touch."""
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
    settings = {**graph.settings, "trained": tuple(sorted(trained))}
    return replace(graph, calls=calls, buffers=tuple(buffers), settings=settings)


def _life(buffer: Buffer, first: int, last: int, place: Mapping[int, int], counts: tuple[int, int]) -> Buffer:
    """A buffer's life in the calls of one stage; what comes from another stage lives from its first use.

    `counts` are the calls of the whole step, and of the stage.
    """
    calls, kept = counts
    born = -1 if buffer.born < 0 else place.get(buffer.born, first)
    dies = kept if buffer.dies >= calls else place.get(buffer.dies, last)
    return buffer._replace(born=born, dies=max(dies, born))


Floats = NDArray[np.float64]

_BLOCK = 64
"""Columns treated at a time: a block of 2,000 rows takes 1 MB."""

_GRID = 3
"""Coarse bounds per stage: enough to come near the best pace."""

_TIE = 1 + 1e-9
"""Paces nearer than this are the same."""

_NOT_BEFORE = np.tri(_BLOCK, dtype=bool)
"""In the square where rows and columns are the same bounds: where i >= j, no stage at all."""


@dataclass(frozen=True, eq=False)
class StageTerms:
    """Terms by bound (n + 1 of them), `needed` and `room` by stage and bound; `traffic` of a cut there."""

    time_from: Floats
    time_to: Floats
    traffic: Floats
    needed: Floats
    room: Floats

    def at(self, bounds: NDArray[np.int64]) -> StageTerms:
        """The same line with fewer bounds."""
        return StageTerms(
            self.time_from[bounds],
            self.time_to[bounds],
            self.traffic[bounds],
            self.needed[:, bounds],
            self.room[:, bounds],
        )

    def pace(self, bounds: tuple[int, ...]) -> float:
        """Time of the slowest stage; infinite for no split."""
        return float(max((self.time_from[i] + self.time_to[j] for i, j in pairwise(bounds)), default=np.inf))


def best_bounds(terms: StageTerms) -> tuple[int, ...]:
    """The split whose slowest stage is fastest, and of those one with least traffic; empty if none fits."""
    stages, count = terms.needed.shape
    limit = np.inf
    step = count // (_GRID * stages)
    if step > 1:
        grid = np.unique(np.append(np.arange(0, count, step), count - 1))
        coarse = terms.at(grid)
        limit = coarse.pace(_search(coarse, np.inf, least_traffic=False))
    fastest = _search(terms, limit, least_traffic=False)
    if not fastest:
        return ()
    return _search(terms, terms.pace(fastest) * _TIE, least_traffic=True)


def _search(terms: StageTerms, limit: float, *, least_traffic: bool) -> tuple[int, ...]:
    """Among splits whose stages take no longer than `limit` the fastest, or that with least traffic."""
    stages, count = terms.needed.shape
    best = np.full(count, np.inf)
    best[0] = 0.0
    choices = np.zeros((stages, count), dtype=np.int64)
    for stage in range(stages):
        following = np.full(count, np.inf)
        # A stage must leave a position to each stage after it, and the last one none.
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
    found = [count - 1]
    for stage in reversed(range(stages)):
        found.append(int(choices[stage, found[-1]]))
    return tuple(reversed(found))


def _first_row(terms: StageTerms, stage: int, columns: slice, limit: float) -> int | None:
    """The first bound from which a stage to one of the columns can be within the limit and fit."""
    rows = slice(0, columns.stop - 1)
    useful = terms.time_from[rows] <= limit - terms.time_to[columns].min()
    useful &= terms.needed[stage, rows] <= terms.room[stage, columns].max()
    first = int(useful.argmax())
    return first if useful[first] else None


def _costs(
    terms: StageTerms,
    stage: int,
    rows: slice,
    columns: slice,
    limit: float,
    best: Floats,
    least_traffic: bool,
) -> Floats:
    """What the stages up to this one cost at best, if it runs from each row to each column."""
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
    """The graph that is left, and how many of its calls come before each one of the former (and the end)."""

    graph: Graph
    before: tuple[int, ...]


def pruned(graph: Graph, calls: Collection[int], parameters: Collection[str]) -> Pruned:
    """Leave out calls and parameters, the memory only they need, and the parameters' part of updates.

    What the calls left read stays, also if it was made by one left out: it then comes from elsewhere.
    """
    gone = _needless(graph, calls, parameters)
    kept = [
        (index, _without_operands(call, gone) if call.phase is Phase.OPTIMIZER else call)
        for index, call in enumerate(graph.calls)
        if index not in calls
    ]
    before = tuple(accumulate((index not in calls for index in range(len(graph.calls))), initial=0))
    number = {old: new for new, old in enumerate(i for i in range(len(graph.buffers)) if i not in gone)}
    left = replace(
        graph,
        calls=tuple(_renumbered(call, number, before) for _, call in kept),
        buffers=tuple(_moved(graph.buffers[old], before, len(graph.calls)) for old in number),
        layers=tuple(layer for layer in graph.layers if not _is_of(layer.path, parameters)),
        settings={
            **graph.settings,
            "trained": [name for name in graph.settings.get("trained", ()) if name not in parameters],
        },
    )
    return Pruned(left, before)


def _needless(graph: Graph, calls: Collection[int], parameters: Collection[str]) -> set[int]:
    """Buffers that go: the parameters' own, and those only calls that go have to do with."""
    weights = (Role.PARAMETER, Role.CAST_WEIGHT, Role.GRADIENT)
    gone = {i for i, b in enumerate(graph.buffers) if b.role in weights and b.name in parameters}
    gone |= {state for state, owner in owners_of_states(graph).items() if owner in gone}
    touched: set[int] = set()
    used: set[int] = set()
    for index, call in enumerate(graph.calls):
        if call.phase is not Phase.OPTIMIZER:
            (touched if index in calls else used).update(call.reads, call.writes)
    return gone | (touched - used)


def _without_operands(call: Call, gone: set[int]) -> Call:
    """An update of fewer tensors; what it writes for those left out goes too."""
    behind = updated(call)
    places = [place for place, buffer in enumerate(behind) if buffer not in gone]
    if len(places) == len(behind):
        return call
    outputs = call.outputs
    if len(call.writes) == len(outputs):
        gone.update(call.writes[place] for place in range(len(outputs)) if behind[place] in gone)
        outputs = tuple(outputs[place] for place in places if place < len(outputs))
    return call._replace(inputs=tuple(call.inputs[place] for place in places), outputs=outputs)


def _renumbered(call: Call, number: dict[int, int], before: tuple[int, ...]) -> Call:
    return call._replace(
        reads=tuple(number[buffer] for buffer in call.reads if buffer in number),
        writes=tuple(number[buffer] for buffer in call.writes if buffer in number),
        forward=None if call.forward is None else before[call.forward],
    )


def _moved(buffer: Buffer, before: tuple[int, ...], calls: int) -> Buffer:
    """A buffer's life, counted in the calls that are left."""
    born = buffer.born if buffer.born < 0 else before[buffer.born]
    dies = before[calls] if buffer.dies >= calls else max(born, before[buffer.dies + 1] - 1)
    return buffer._replace(born=born, dies=dies)


def _is_of(path: str, parameters: Collection[str]) -> bool:
    return f"{path}.weight" in parameters
