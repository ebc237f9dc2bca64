"""Makes templates of traced graphs, and proves them: a template that does not give every field of a graph
traced at other sizes and another depth is not kept.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from foretrain.workloads.graph import Buffer, Graph, Phase, Role
from foretrain.workloads.recorded.template import (
    FROM_END,
    FROM_START,
    LAYERS,
    OWN_PARAMETERS,
    RELATIVE,
    SIZE,
    Expression,
    Fitter,
    NoExpression,
    NotCovered,
    NotWhole,
    Point,
    Template,
)

_INDEX = re.compile(r"(?:^|(?<=\.))\d+(?=\.|$)")


class NotRecordable(Exception):
    """Graphs that are no instances of one template."""


class Depth(NamedTuple):
    """How deep a model is traced for a template: `edge` blocks at either end differ from those between."""

    layers: int
    period: int
    edge: int

    @property
    def blocks(self) -> int:
        """Number of groups of `period` layers."""
        return self.layers // self.period


DEPTHS = (Depth(4, 1, 1), Depth(7, 1, 2), Depth(8, 2, 1))
"""What is tried, in this order: with two blocks between the ends at least, which must be equal."""
FLAT = Depth(0, 1, 0)
"""Of a model whose depth is fixed."""


def resolve_specs(graph: Graph) -> Graph:
    """A graph to compare: specs stand in place of their numbers, which depend on the order of recording."""

    def resolve(numbers: Iterable[int]) -> tuple[Any, ...]:
        return tuple(None if number < 0 else graph.specs[number] for number in numbers)

    return replace(
        graph,
        specs=tuple(sorted(set(graph.specs))),
        calls=tuple(
            each._replace(inputs=resolve(each.inputs), outputs=resolve(each.outputs)) for each in graph.calls
        ),
        buffers=tuple(each._replace(spec=resolve((each.spec,))[0]) for each in graph.buffers),
        layers=tuple(each._replace(outputs=resolve(each.outputs)) for each in graph.layers),
    )


def find_difference(one: Graph, other: Graph) -> str | None:
    """The first field in which two graphs differ, or None."""
    one, other = resolve_specs(one), resolve_specs(other)
    for name in ("calls", "buffers", "layers", "trained"):
        for number, pair in enumerate(itertools.zip_longest(getattr(one, name), getattr(other, name))):
            if pair[0] != pair[1]:
                return f"{name}[{number}]: {pair[0]} != {pair[1]}"
    for name in ("specs", "batch", "samples", "tokens", "options", "notes", "is_whole_step"):
        if getattr(one, name) != getattr(other, name):
            return f"{name}: {getattr(one, name)} != {getattr(other, name)}"
    return None


def without_update(graph: Graph) -> Graph:
    """A graph without its optimizer: neither its calls nor its state."""
    end = sum(call.phase is not Phase.OPTIMIZER for call in graph.calls)
    kept = [
        number
        for number, buffer in enumerate(graph.buffers)
        if buffer.role is not Role.OPTIMIZER_STATE and (buffer.born < end or buffer.role is Role.GRADIENT)
    ]
    new = {old: number for number, old in enumerate(kept)}
    return replace(
        graph,
        calls=tuple(
            call._replace(
                reads=tuple(new[each] for each in call.reads), writes=tuple(new[each] for each in call.writes)
            )
            for call in graph.calls[:end]
        ),
        buffers=tuple(
            graph.buffers[number]._replace(dies=min(graph.buffers[number].dies, end)) for number in kept
        ),
    )


def make_template(graphs: Sequence[Graph], points: Sequence[Point], depth: Depth = FLAT) -> Template:
    """The template through graphs of one structure, each traced at the sizes of its point."""
    return Template(_Maker(graphs, points, depth).tables())


class _Maker:
    """A template being made: the joint tables of several graphs of one structure."""

    def __init__(self, graphs: Sequence[Graph], points: Sequence[Point], depth: Depth) -> None:
        self._graphs, self._depth = graphs, depth
        self._fitter = Fitter(points)
        self._expressions: dict[str, tuple[int, Expression]] = {}
        self._specs: dict[tuple[int, ...], int] = {}
        self._signatures: dict[str, tuple[int, Any]] = {}
        self._names: dict[Any, int] = {}
        self._first = graphs[0]
        for other in graphs[1:]:
            _check_structure(self._first, other)
        self._stacks = self._find_stacks()
        self._owned_count = self._count_owned()
        self._owned = self._segments(
            [self._label(each.name) for each in self._first.buffers[: self._owned_count]]
        )
        self._calls = self._segments(self._label_calls())
        self._layers = self._segments([self._label(each.path) for each in self._first.layers])
        self._made = self._list_made()

    def tables(self) -> dict[str, Any]:
        first = self._first
        sequences = {
            "owned": [self._store(each, self._store_owned) for each in self._owned],
            "calls": [self._store(each, self._store_calls) for each in self._calls],
            "layers": [self._store(each, self._store_layers) for each in self._layers],
        }
        specs = [
            (
                [
                    self._expression(
                        [
                            graph.specs[number].shape[dim]
                            for graph, number in zip(self._graphs, numbers, strict=True)
                        ]
                    )
                    for dim in range(len(first.specs[numbers[0]].shape))
                ],
                first.specs[numbers[0]].dtype,
            )
            for numbers in self._specs
        ]
        counts = [
            self._fitter.fit([graph.samples for graph in self._graphs]),
            self._fitter.fit([graph.tokens for graph in self._graphs]),
        ]
        return {
            "period": self._depth.period,
            "edge": self._depth.edge,
            "least": 2 * self._depth.edge + 1,
            "covers": {},
            "counts": counts,
            "notes": list(first.notes),
            "names": list(self._names),
            "specs": specs,
            "signatures": [each for _, each in self._signatures.values()],
            **sequences,
            "expressions": [each for _, each in self._expressions.values()],
        }

    # Sequences and their segments

    def _find_stacks(self) -> frozenset[str]:
        """What stands before the number of a block: prefixes that occur with every number of a layer."""
        if not self._depth.layers:
            return frozenset()
        numbers: dict[str, set[int]] = {}
        names = itertools.chain(
            (each.module for each in self._first.calls), (each.name for each in self._first.buffers)
        )
        for name in names:
            match = _INDEX.search(name)
            if match:
                numbers.setdefault(name[: match.start()], set()).add(int(match.group()))
        return frozenset(prefix for prefix, seen in numbers.items() if seen == set(range(self._depth.layers)))

    def _label(self, name: str) -> tuple[str, int] | None:
        """The stack and the block that a name belongs to."""
        match = _INDEX.search(name)
        if not match or name[: match.start()] not in self._stacks:
            return None
        return name[: match.start()], int(match.group()) // self._depth.period

    def _label_calls(self) -> list[tuple[str, int] | None]:
        """Calls of the backward pass that belong to no module (a sum of gradients) go with the one before."""
        labels: list[tuple[str, int] | None] = []
        for call in self._first.calls:
            label = self._label(call.module)
            if not call.module and call.phase is Phase.BACKWARD and call.forward is None and labels:
                label = labels[-1]
            labels.append(label)
        return labels

    def _segments(self, labels: Sequence[tuple[str, int] | None]) -> list[_Segment]:
        runs: list[tuple[tuple[str, int] | None, range]] = []
        at = 0
        for label, group in itertools.groupby(labels):
            count = len(list(group))
            runs.append((label, range(at, at + count)))
            at += count
        segments: list[_Segment] = []
        blocks = self._depth.blocks
        position = 0
        while position < len(runs):
            label, where = runs[position]
            if label is None:
                segments.append(_Segment(False, (where,), (0,)))
                position += 1
                continue
            down = label[1] != 0
            wanted = list(reversed(range(blocks))) if down else list(range(blocks))
            chain = runs[position : position + blocks]
            if [each for each, _ in chain] != [(label[0], block) for block in wanted]:
                raise NotRecordable(
                    f"blocks of {label[0]} run in another order: {[each for each, _ in chain]}"
                )
            segments.append(_Segment(True, tuple(where for _, where in chain), tuple(wanted)))
            position += blocks
        return segments

    def _count_owned(self) -> int:
        before = (Role.PARAMETER, Role.MODULE_BUFFER, Role.INPUT)
        kept = itertools.takewhile(
            lambda each: each.role in before or (each.role is Role.GRADIENT and each.born == 0),
            self._first.buffers,
        )
        return len(list(kept))

    def _list_made(self) -> list[list[list[int]]]:
        """For every segment and instance the buffers that its calls make, in order."""
        by_call: dict[int, list[int]] = {}
        last = len(self._first.calls) - 1
        for number in range(self._owned_count, len(self._first.buffers)):
            # A gradient that was copied out of the last call is first seen after it
            by_call.setdefault(min(self._first.buffers[number].born, last), []).append(number)
        return [
            [[buffer for call in where for buffer in by_call.get(call, ())] for where in segment.ranges]
            for segment in self._calls
        ]

    # Storing

    def _store(self, segment: _Segment, store: Callable[[list[tuple[int, int]]], Any]) -> Any:
        """`store` takes (instance, block) pairs that must be stored as one."""
        if not segment.is_loop:
            return store([(segment, 0, 0)])  # type: ignore[list-item]
        blocks, edge = self._depth.blocks, self._depth.edge
        place = {block: number for number, block in enumerate(segment.blocks)}

        def of(chosen: Iterable[int]) -> Any:
            return store([(segment, place[block], block) for block in chosen])  # type: ignore[misc]

        return {
            "down": segment.blocks[0] != 0,
            "first": [of([block]) for block in range(edge)],
            "middle": of(range(edge, blocks - edge)),
            "last": [of([block]) for block in range(blocks - edge, blocks)],
        }

    def _store_owned(self, instances: list[Any]) -> Any:
        items = []
        for numbers in _together(instances):
            buffers = [self._first.buffers[number] for number in numbers]
            first = buffers[0]
            items.append(
                (
                    self._spec(numbers, lambda graph, number: graph.buffers[number].spec),
                    _same([each.role.value for each in buffers]),
                    self._name([each.name for each in buffers], instances),
                    _same(
                        [
                            each.role is Role.PARAMETER and each.name in self._first.trained_names
                            for each in buffers
                        ]
                    ),
                    _same([each.born for each in buffers]),
                    self._dies(buffers, instances, None),
                )
            )
            del first
        return {"items": items}

    def _store_layers(self, instances: list[Any]) -> Any:
        items = []
        for numbers in _together(instances):
            layers = [self._first.layers[number] for number in numbers]
            outputs = [
                self._spec(numbers, lambda graph, number, place=place: graph.layers[number].outputs[place])
                for place in range(len(layers[0].outputs))
            ]
            name = self._name([each.path for each in layers], instances)
            items.append((name, _same([each.type for each in layers]), outputs, self._parameters(numbers)))
        return {"items": items}

    def _parameters(self, numbers: Sequence[int]) -> Any:
        number = numbers[0]
        owns = all(
            graph.layers[number].parameters
            == sum(
                graph.specs[each.spec].elements
                for each in graph.buffers
                if each.role is Role.PARAMETER and each.name.rpartition(".")[0] == graph.layers[number].path
            )
            for graph in self._graphs
        )
        if owns:
            return OWN_PARAMETERS
        return self._expression([graph.layers[number].parameters for graph in self._graphs])

    def _store_calls(self, instances: list[Any]) -> Any:
        segment = instances[0][0]
        items = []
        for numbers in _together(instances):
            calls = [self._first.calls[number] for number in numbers]
            forwards = [each.forward for each in calls]
            if forwards[0] is None:
                forward = _same(forwards)
            else:
                forward = self._call_reference(forwards, instances, numbers)
            items.append(
                (
                    self._signature(numbers),
                    self._name([each.module for each in calls], instances),
                    [
                        self._buffer_reference(each, instances)
                        for each in zip(*_equal_lengths([call.reads for call in calls]), strict=True)
                    ],
                    [
                        self._buffer_reference(each, instances)
                        for each in zip(*_equal_lengths([call.writes for call in calls]), strict=True)
                    ],
                    forward,
                )
            )
        where = self._calls.index(segment)
        made = [self._made[where][instance] for _, instance, _ in instances]
        buffers = []
        for numbers in zip(*_equal_lengths(made), strict=True):
            each = [self._first.buffers[number] for number in numbers]
            starts = [segment.ranges[instance].start for _, instance, _ in instances]
            buffers.append(
                (
                    self._spec(numbers, lambda graph, number: graph.buffers[number].spec),
                    _same([buffer.role.value for buffer in each]),
                    self._name([buffer.name for buffer in each], instances),
                    _same([buffer.born - start for buffer, start in zip(each, starts, strict=True)]),
                    self._dies(each, instances, [buffer.born for buffer in each]),
                )
            )
        return {"items": items, "buffers": buffers}

    def _dies(self, buffers: Sequence[Buffer], instances: list[Any], origins: Sequence[int] | None) -> Any:
        end = len(self._first.calls)
        if buffers[0].dies >= end:
            _same([each.dies for each in buffers])
            return None
        return self._call_reference([each.dies for each in buffers], instances, origins)

    # References

    def _call_reference(
        self, targets: Sequence[Any], instances: list[Any], origins: Sequence[int] | None
    ) -> Any:
        homes = [_home(self._calls, target) for target in targets]
        if origins is not None:
            inside = [
                (self._calls[home[0]] is segment and home[1] == block)
                for home, (segment, _, block) in zip(homes, instances, strict=True)
            ]
            if all(inside):
                return _same([target - origin for target, origin in zip(targets, origins, strict=True)])
        return self._reference(homes, instances)

    def _buffer_reference(self, targets: Sequence[int], instances: list[Any]) -> Any:
        if all(target < self._owned_count for target in targets):
            homes = [_home(self._owned, target) for target in targets]
            segment, *rest = self._reference(homes, instances)
            return [-1 - segment, *rest]
        homes = []
        for target in targets:
            born = self._first.buffers[target].born
            segment, block, _ = _home(self._calls, born)
            made = self._made[segment][self._calls[segment].blocks.index(block)]
            homes.append((segment, block, made.index(target)))
        if all(
            self._calls[home[0]] is segment and home[1] == block
            for home, (segment, _, block) in zip(homes, instances, strict=True)
        ):
            return _same([home[2] for home in homes])
        return self._reference(homes, instances)

    def _reference(self, homes: Sequence[tuple[int, int, int]], instances: list[Any]) -> list[int]:
        segment = _same([home[0] for home in homes])
        number = _same([home[2] for home in homes])
        blocks = [home[1] for home in homes]
        own = [block for _, _, block in instances]
        last = self._depth.blocks - 1
        if len(homes) == 1:
            from_start = blocks[0] * 2 <= last
            return (
                [segment, FROM_START, blocks[0], number]
                if from_start
                else [segment, FROM_END, blocks[0] - last, number]
            )
        steps = {block - each for block, each in zip(blocks, own, strict=True)}
        if len(steps) == 1:
            return [segment, RELATIVE, steps.pop(), number]
        block = _same(blocks)
        return (
            [segment, FROM_START, block, number]
            if block * 2 <= last
            else [segment, FROM_END, block - last, number]
        )

    # Tables

    def _expression(self, values: Sequence[int]) -> int:
        expression = self._fitter.fit(values)
        return self._expressions.setdefault(str(expression), (len(self._expressions), expression))[0]

    def _spec(self, numbers: Sequence[int], of: Callable[..., int]) -> int:
        """The joint number of the specs at a place: the same in all blocks that are stored as one."""
        joint = [self._joint([of(graph, number) for graph in self._graphs]) for number in numbers]
        return int(_same(joint))

    def _joint(self, numbers: Sequence[int]) -> int:
        if numbers[0] < 0:
            return -1
        return self._specs.setdefault(tuple(numbers), len(self._specs))

    def _name(self, names: Sequence[str], instances: list[Any]) -> int:
        stored: set[Any] = set()
        for name, (segment, _, block) in zip(names, instances, strict=True):
            match = _INDEX.search(name)
            if segment.is_loop and match and name[: match.start()] in self._stacks:
                offset = int(match.group()) - self._depth.period * block
                stored.add((name[: match.start()], offset, name[match.end() :]))
            else:
                stored.add(name)
        if len(stored) > 1:
            raise NotRecordable(f"names of equal blocks differ: {sorted(map(str, stored))[:3]}")
        return self._names.setdefault(stored.pop(), len(self._names))

    def _signature(self, numbers: Sequence[int]) -> int:
        numbered = set()
        for number in numbers:
            calls = [graph.calls[number] for graph in self._graphs]
            first = calls[0]
            inputs = [self._joint(each) for each in zip(*(call.inputs for call in calls), strict=True)]
            outputs = [self._joint(each) for each in zip(*(call.outputs for call in calls), strict=True)]
            settings = {key: self._setting([call.settings[key] for call in calls]) for key in first.settings}
            signature = (
                first.name,
                first.phase.value,
                inputs,
                outputs,
                settings,
                first.nature.value,
                first.recomputed,
            )
            numbered.add(self._signatures.setdefault(str(signature), (len(self._signatures), signature))[0])
        return int(_same(list(numbered)))

    def _setting(self, values: Sequence[Any]) -> Any:
        if all(value == values[0] for value in values):
            return values[0]
        if isinstance(values[0], list):
            return [self._setting(each) for each in zip(*values, strict=True)]
        return {SIZE: self._expression(values)}


class _Segment(NamedTuple):
    """Items that run once, or once for each block: where each instance stands, and its block."""

    is_loop: bool
    ranges: tuple[range, ...]
    blocks: tuple[int, ...]


def _together(instances: list[Any]) -> list[tuple[int, ...]]:
    """Items at the same place of instances that must be stored as one."""
    return list(
        zip(*_equal_lengths([segment.ranges[number] for segment, number, _ in instances]), strict=True)
    )


def _equal_lengths(sequences: Sequence[Any]) -> Sequence[Any]:
    if len({len(each) for each in sequences}) > 1:
        raise NotRecordable(f"equal blocks of {[len(each) for each in sequences]} items")
    return sequences


def _same(values: Sequence[Any]) -> Any:
    if any(value != values[0] for value in values):
        raise NotRecordable(f"blocks differ: {list(values)[:4]}")
    return values[0]


def _home(segments: Sequence[_Segment], item: int) -> tuple[int, int, int]:
    """The segment, block and place of an item."""
    for number, segment in enumerate(segments):
        if item < max(each.stop for each in segment.ranges):
            for where, block in zip(segment.ranges, segment.blocks, strict=True):
                if item in where:
                    return number, block, item - where.start
    raise NotRecordable(f"item {item} belongs to no segment")


def _check_structure(one: Graph, other: Graph) -> None:
    same = len(one.calls) == len(other.calls) and len(one.buffers) == len(other.buffers)
    if not same or len(one.layers) != len(other.layers):
        raise NotRecordable(f"{len(one.calls)} calls at one size, {len(other.calls)} at another")
    for a, b in zip(one.calls, other.calls, strict=True):
        if a._replace(inputs=(), outputs=(), settings={}) != b._replace(inputs=(), outputs=(), settings={}):
            raise NotRecordable(f"{a.name} in {a.module or 'the root'} is called differently at another size")
        if (
            a.settings.keys() != b.settings.keys()
            or len(a.inputs) != len(b.inputs)
            or len(a.outputs) != len(b.outputs)
        ):
            raise NotRecordable(f"{a.name} in {a.module or 'the root'} is called differently at another size")
    for x, y in zip(one.buffers, other.buffers, strict=True):
        if x._replace(spec=0) != y._replace(spec=0):
            raise NotRecordable("memory lives differently at another size")
    for p, q in zip(one.layers, other.layers, strict=True):
        if (p.path, p.type, len(p.outputs)) != (q.path, q.type, len(q.outputs)):
            raise NotRecordable("layers run differently at another size")
    if one.trained != other.trained or one.notes != other.notes:
        raise NotRecordable("other parameters are trained at another size")


def record(
    trace: Callable[[Point], Graph],
    points: Sequence[Point],
    check: Point | None,
    depths: Sequence[Depth] = (FLAT,),
) -> Template:
    """The template of what `trace` gives at some sizes; it gives the same as `trace` at those of `check`.

    `check` has a depth of its own, of a model that was not recorded. Two graphs determine one that is linear
    in its only size, which needs no check.
    """
    problem = "no depth was tried"
    for depth in depths:
        at = [{**point, LAYERS: depth.layers} if depth.layers else point for point in points]
        try:
            template = make_template([trace(point) for point in at], at, depth)
            if check is not None:
                _prove(template, trace, check)
            if check is not None and depth.layers:
                template = _with_least_depth(
                    template, trace, {**check, LAYERS: 2 * depth.edge * depth.period}
                )
        except NoExpression as error:
            raise NotRecordable(str(error)) from error
        except (NotRecordable, NotWhole, NotCovered) as error:
            problem = f"{depth}: {error}"
            continue
        return template
    raise NotRecordable(problem)


def _prove(template: Template, trace: Callable[[Point], Graph], check: Point) -> None:
    graph = trace(check)
    different = find_difference(template.graph_at(check, graph.options), graph)
    if different is not None:
        raise NotRecordable(f"at {dict(check)}: {different}")


def _with_least_depth(template: Template, trace: Callable[[Point], Graph], check: Point) -> Template:
    """The template, for models that have only first and last blocks too, if it holds for them."""
    least = Template({**template.tables, "least": template.tables["least"] - 1})
    try:
        _prove(least, trace, check)
    except (NotRecordable, NotWhole):
        return template
    return least
