"""A graph of many equal blocks from the graphs of a few.

One more equal block adds the same calls, buffers and layers at the same places, and moves what comes behind
them. So two recordings, of k and of k + 1 blocks, determine the step of every deeper model. `deepen` aligns
both and finds the *runs*: the parts of each list that one more block makes longer. With blocks of calls
`f g`, their backward calls `F G`, and an embedding `e` and a loss `l` around them:

    4 blocks:  e fg fg fg fg l L GF GF GF GF E
    5 blocks:  e fg fg fg fg fg l L GF GF GF GF GF E     two runs, of length 2 each

Inside a run every number (a buffer that a call reads, the call a buffer dies after, the number in the name
`blocks.7.norm`) is linear in the block: v = c + α·block + β·blocks. Outside of runs it is linear in the
number of blocks. The first and the last block of a run count as outside, since they touch what is different.
All blocks of both recordings must fit these lines, and every number must point to the same place of the same
list in both, counted from the start or the end of a run; otherwise `NotDerivable` is raised, and the caller
works on the whole graph. Lists inside of calls (an optimizer that updates all tensors at once) have runs of
their own.

Strategies and compilers work on the two small graphs, too: what they make of them is deepened the same way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, wraps
from itertools import repeat
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from foretrain.workloads.graph import Buffer, Call, Graph, Layer, Repeats, Structure

Item = TypeVar("Item")
Integers = NDArray[np.int64]
_FEWEST = 2
"""Blocks of a run, without its first and last, that show a line."""


class NotDerivable(Exception):
    """The recorded graphs differ in more than sizes and numbers of equal blocks."""


class Numbered(NamedTuple):
    """An item of a list: what aligns it with another depth, what is the same at every depth, and the numbers
    that are not: first the calls it refers to (`calls` of them), then buffers (`buffers`), then others."""

    kind: Hashable
    same: Any
    numbers: tuple[int, ...]
    calls: int = 0
    buffers: int = 0


class _Run(NamedTuple):
    """A part of a list that grows by `length` rows with each block: where it starts in the shallow list and
    in the deeper one, how many blocks of it are there, and from where to where the shallow list repeats."""

    low: int
    high: int
    length: int
    low_count: int
    high_count: int
    low_edges: tuple[int, int]


class Aligned(NamedTuple):
    """Two lists and their runs, which make the list at any depth."""

    low: Sequence[Numbered]
    high: Sequence[Numbered]
    runs: tuple[_Run, ...]

    def check(self, low: Integers, high: Integers) -> None:
        """Raise unless places in the two lists are the same, counted from the start or the end of a run."""
        flat = np.array([edge for run in self.runs for edge in run.low_edges], np.int64)
        moved = np.concatenate(([0], np.cumsum([run.length for run in self.runs], dtype=np.int64)))
        segment = np.searchsorted(flat, low, side="right")
        shift = high - low
        if not np.all((shift == moved[segment // 2]) | (shift == moved[(segment + 1) // 2])):
            raise NotDerivable("a block refers to different places at different depths")


def align(low: Sequence[Numbered], high: Sequence[Numbered]) -> Aligned:
    """Two lists with the runs that one more block makes longer."""
    ids: dict[Hashable, int] = {}
    a, b = (np.array([ids.setdefault(row.kind, len(ids)) for row in rows], np.int64) for rows in (low, high))
    runs: list[_Run] = []
    i = j = behind = 0
    while True:
        common = _common_prefix(a[i:], b[j:])
        i, j = i + common, j + common
        if i == len(a) and j == len(b):
            return Aligned(low, high, tuple(runs))
        length = _inserted(a, b, i, j)
        start = j - length
        while start > behind and b[start - 1] == b[start - 1 + length]:
            start -= 1
        count, rest = divmod(j + length - start, length)
        if count - 2 < _FEWEST:
            raise NotDerivable(f"only {count} blocks are equal")
        first = start + length + rest // 2
        runs.append(_Run(first - (j - i), first, length, count - 3, count - 2, (start - (j - i), i)))
        j = behind = j + length


def _inserted(a: Integers, b: Integers, i: int, j: int) -> int:
    """How many items of `b` from `j` on repeat those before them, such that `b` goes on as `a` from `i`."""
    # Of several lengths that repeat, that after which the lists agree longest; then the shortest.
    best = (-1, 0)
    for length in range(1, min(len(b) - j - (len(a) - i), j) + 1):
        follows = j + length == len(b) if i == len(a) else j + length < len(b) and b[j + length] == a[i]
        if follows and np.array_equal(b[j - length : j], b[j : j + length]):
            best = max(best, (_common_prefix(a[i:], b[j + length :]), -length))
    if best[1] == 0:
        raise NotDerivable("one more block does not add a copy of the one before")
    return -best[1]


def _common_prefix(a: Integers, b: Integers) -> int:
    shorter = min(len(a), len(b))
    different = np.flatnonzero(a[:shorter] != b[:shorter])
    return int(different[0]) if len(different) else shorter


class Lines(NamedTuple):
    """The numbers of a row in all blocks of a run: each starts somewhere and takes equal steps."""

    starts: tuple[int, ...]
    steps: tuple[int, ...]
    blocks: int

    def part(self, start: int, end: int) -> list[tuple[int, ...]]:
        """Some of the numbers, block by block."""
        if start == end:
            return [()] * self.blocks
        if self.blocks == 1:
            return [self.starts[start:end]]
        pairs = zip(self.starts[start:end], self.steps[start:end], strict=True)
        count = self.blocks
        return list(
            zip(*(range(a, a + s * count, s) if s else repeat(a, count) for a, s in pairs), strict=True)
        )


def _lines(lows: Sequence[Numbered], highs: Sequence[Numbered], extra: int, count: int) -> Lines:
    """The numbers of a row with `extra` more blocks, if they are on a line in both recordings."""
    first, other = highs[0].numbers, lows[0].numbers
    steps = (0,) * len(first)
    if len(highs) > 1:
        steps = tuple([b - a for a, b in zip(first, highs[1].numbers, strict=True)])
        for rows, origin in ((lows, other), (highs, first)):
            for block, row in enumerate(rows):
                if row.numbers != tuple([a + s * block for a, s in zip(origin, steps, strict=True)]):
                    raise NotDerivable(f"{highs[0].kind} does not move evenly from block to block")
    starts = tuple([b + (b - a) * extra for a, b in zip(other, first, strict=True)])
    return Lines(starts, steps, count)


Make = Callable[[Numbered, Lines], Sequence[Item]]
"""Makes the items of a row in all blocks."""
Grow = Callable[[Numbered, Numbered], Item]
"""Makes the item of a row that is not the same at both depths."""


class References:
    """Pairs of numbers that must be the same place of a list in both recordings."""

    def __init__(self) -> None:
        self._low: dict[str, list[int]] = {"calls": [], "buffers": []}
        self._high: dict[str, list[int]] = {"calls": [], "buffers": []}

    def add(self, low: Numbered, high: Numbered) -> None:
        """Note the references of a row."""
        for numbers, row in ((self._low, low), (self._high, high)):
            numbers["calls"] += row.numbers[: row.calls]
            numbers["buffers"] += row.numbers[row.calls : row.calls + row.buffers]

    def check(self, calls: Aligned, buffers: Aligned) -> None:
        """Raise `NotDerivable` if one of them is not."""
        for name, both in (("calls", calls), ("buffers", buffers)):
            both.check(np.array(self._low[name], np.int64), np.array(self._high[name], np.int64))


def extend(
    both: Aligned, extra: int, make: Make[Item], references: References, grow: Grow[Item] | None = None
) -> list[Item]:
    """A list with `extra` more blocks than the deeper of two recordings."""
    items: list[Item] = []
    at_low = at_high = 0
    for run in (*both.runs, _Run(len(both.low), len(both.high), 0, 0, 0, (0, 0))):
        for low, high in zip(both.low[at_low : run.low], both.high[at_high : run.high], strict=True):
            if _differ(low, high):
                if grow is None:
                    raise NotDerivable(f"{high.kind} is different at another depth")
                items.append(grow(low, high))
                continue
            references.add(low, high)
            items += make(high, _lines((low,), (high,), extra, 1))
        at_low, at_high = run.low + run.length * run.low_count, run.high + run.length * run.high_count
        count = run.high_count + extra
        block: list[Any] = [None] * (run.length * count)
        for place in range(run.length):
            lows = both.low[run.low + place : at_low : run.length]
            highs = both.high[run.high + place : at_high : run.length]
            if any(_differ(highs[0], row) for row in (*lows, *highs)):
                raise NotDerivable(f"{highs[0].kind} is different in another block")
            references.add(lows[0], highs[0])
            references.add(lows[-1], highs[-1])
            block[place :: run.length] = make(highs[0], _lines(lows, highs, extra, count))
        items += block
    return items


def _differ(one: Numbered, other: Numbered) -> bool:
    return len(one.numbers) != len(other.numbers) or bool(one.same != other.same)


def deepen(low: Graph, high: Graph, extra: int) -> Graph:
    """The graph with `extra` more blocks than `high`, which has one more than `low`."""
    if _run_as(low) != _run_as(high):
        raise NotDerivable("the step is run differently at another depth")
    if low.specs != high.specs:
        raise NotDerivable("tensors have other sizes at another depth")
    wiring = _wiring(low.structure, high.structure, extra).deep
    graph = replace(
        high,
        calls=wiring.calls,
        buffers=wiring.buffers,
        layers=_layers(low.layers, high.layers, extra),
        trained=_names(low.trained, high.trained, extra),
        structure=wiring,
    )
    object.__setattr__(graph, "repeats", Repeats(low, high, extra))
    return graph


def at_every_depth(change: Callable[[Graph], Graph]) -> Callable[[Graph], Graph]:
    """Let a change of a graph be made on the few blocks that it was derived from, where that is the same."""

    @wraps(change)
    def changed(graph: Graph) -> Graph:
        if graph.repeats is not None:
            low, high, extra = graph.repeats
            few = change(low), change(high)
            if few[0] is low and few[1] is high:
                return graph
            with suppress(NotDerivable):
                return deepen(*few, extra)
        return change(graph)

    return changed


def _run_as(graph: Graph) -> tuple[Any, ...]:
    sizes = (graph.batch, graph.samples, graph.tokens, graph.offloaded_state_bytes_per_parameter)
    return (graph.options, graph.notes, graph.is_whole_step, sizes)


class _Wiring(NamedTuple):
    """Calls and buffers of a deeper graph, and how those of the recordings are aligned."""

    deep: Structure
    calls: Aligned
    buffers: Aligned


@lru_cache(maxsize=8)
def _wiring(low: Structure, high: Structure, extra: int) -> _Wiring:
    """Calls and buffers of a deeper graph, which graphs at all batch sizes share."""
    buffers = align(*([_buffer_row(each) for each in structure.buffers] for structure in (low, high)))
    calls = align(*([_call_row(each) for each in structure.calls] for structure in (low, high)))
    references = References()

    def make_buffers(row: Numbered, lines: Lines) -> list[Buffer]:
        spec, role, _ = row.same
        return [
            Buffer(spec, born, dies, role, name)
            for (born, dies), name in zip(lines.part(0, 2), names_in(row.same[2], lines, 2), strict=True)
        ]

    def make_calls(row: Numbered, lines: Lines) -> list[Call]:
        (name, phase, template, nature, recomputed, has_forward), inputs, outputs, reads, settings = row.same
        writes = 1 + row.buffers
        columns = zip(
            names_in(template, lines, writes),
            lines.part(1, 1 + reads),
            lines.part(1 + reads, writes),
            (each for (each,) in lines.part(0, 1)) if has_forward else repeat(None, lines.blocks),
            strict=True,
        )
        return [
            Call(name, phase, module, inputs, outputs, read, written, settings, nature, forward, recomputed)
            for module, read, written, forward in columns
        ]

    def grow(one: Numbered, other: Numbered) -> Call:
        head, *_, reads, settings = other.same
        names = one.numbers[1 + one.buffers :], other.numbers[1 + other.buffers :]
        if (one.same[0], one.same[4]) != (head, settings) or head[-1] or names[0] != names[1]:
            raise NotDerivable(f"{other.kind} is called differently at another depth")
        lists = [
            extend(align(*rows), extra, make_numbers, references)
            for rows in (
                (_constants(one.same[1]), _constants(other.same[1])),
                (_constants(one.same[2]), _constants(other.same[2])),
                (refer(buffers.low, one, 1, 1 + one.same[3]), refer(buffers.high, other, 1, 1 + reads)),
                (
                    refer(buffers.low, one, 1 + one.same[3], 1 + one.buffers),
                    refer(buffers.high, other, 1 + reads, 1 + other.buffers),
                ),
            )
        ]
        inputs, outputs, read, written = map(tuple, lists)
        name, phase, template, nature, recomputed, _ = head
        module = template.format(*names[1])
        return Call(name, phase, module, inputs, outputs, read, written, settings, nature, None, recomputed)

    def refer(rows: Sequence[Numbered], call: Numbered, start: int, end: int) -> list[Numbered]:
        return [Numbered(rows[each].kind, None, (each,), 0, 1) for each in call.numbers[start:end]]

    def make_numbers(row: Numbered, lines: Lines) -> list[int]:
        return [row.same] * lines.blocks if row.same is not None else [each for (each,) in lines.part(0, 1)]

    deep = Structure(
        tuple(extend(calls, extra, make_calls, references, grow)),
        tuple(extend(buffers, extra, make_buffers, references)),
    )
    references.check(calls, buffers)
    return _Wiring(deep, calls, buffers)


def extend_beside(
    low: Graph, high: Graph, rows: tuple[Sequence[Numbered], Sequence[Numbered]], extra: int, make: Make[Item]
) -> list[Item]:
    """A list that refers to the calls of a graph, such as exchanges between them, with more blocks."""
    wiring = _wiring(low.structure, high.structure, extra)
    references = References()
    items = extend(align(*rows), extra, make, references)
    references.check(wiring.calls, wiring.buffers)
    return items


def _buffer_row(buffer: Buffer) -> Numbered:
    template, numbers = split_name(buffer.name)
    same = (buffer.spec, buffer.role, template)
    return Numbered(same, same, (buffer.born, buffer.dies, *numbers), 2)


def kind_of_call(call: Call) -> tuple[Any, ...]:
    """What aligns a call with that of another depth."""
    template, _ = split_name(call.module)
    return (call.name, call.phase, template, call.nature, call.recomputed, call.forward is not None)


def _call_row(call: Call) -> Numbered:
    _, numbers = split_name(call.module)
    head = kind_of_call(call)
    same = (head, call.inputs, call.outputs, len(call.reads), call.settings)
    forward = -1 if call.forward is None else call.forward
    refers = (forward, *call.reads, *call.writes)
    return Numbered(head, same, (*refers, *numbers), 1, len(refers) - 1)


@lru_cache(maxsize=256)
def _layers(low: tuple[Layer, ...], high: tuple[Layer, ...], extra: int) -> tuple[Layer, ...]:
    def rows(layers: tuple[Layer, ...]) -> list[Numbered]:
        split = [split_name(layer.path) for layer in layers]
        same = [
            (path, layer.type, layer.outputs, layer.parameters)
            for (path, _), layer in zip(split, layers, strict=True)
        ]
        return [Numbered(each, each, numbers) for each, (_, numbers) in zip(same, split, strict=True)]

    def make(row: Numbered, lines: Lines) -> list[Layer]:
        return [Layer(path, *row.same[1:]) for path in names_in(row.same[0], lines, 0)]

    return tuple(extend(align(rows(low), rows(high)), extra, make, References()))


@lru_cache(maxsize=256)
def _names(low: tuple[str, ...], high: tuple[str, ...], extra: int) -> tuple[str, ...]:
    both = align(
        *(
            [Numbered(template, template, numbers) for template, numbers in map(split_name, names)]
            for names in (low, high)
        )
    )
    return tuple(extend(both, extra, lambda row, lines: names_in(row.same, lines, 0), References()))


def _constants(numbers: Sequence[int]) -> list[Numbered]:
    return [Numbered(each, each, ()) for each in numbers]


@lru_cache(maxsize=1 << 16)
def split_name(name: str) -> tuple[str, tuple[int, ...]]:
    """A name with its numbers left open, and the numbers: `blocks.7.norm` is `blocks.{}.norm` and 7."""
    parts = _NUMBER.split(name.replace("{", "{{").replace("}", "}}"))
    return "{}".join(parts[::2]), tuple(map(int, parts[1::2]))


_NUMBER = re.compile(r"(?<![^. ])(0|[1-9][0-9]*)(?![^. ])")
"""A word or a component of a path that is a number, as those of blocks are."""


def names_in(template: str, lines: Lines, start: int) -> list[str]:
    """The names of a row in all blocks; its numbers are the last, from `start` on."""
    return _fill_names(template, Lines(lines.starts[start:], lines.steps[start:], lines.blocks))


@lru_cache(maxsize=4096)
def _fill_names(template: str, lines: Lines) -> list[str]:
    """Names are shared: a block has a dozen of them for some hundred calls."""
    return [template.format(*each) for each in lines.part(0, len(lines.starts))]
