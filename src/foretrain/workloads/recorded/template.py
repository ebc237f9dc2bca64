"""A graph of any size and depth: what is stored of a recording, and the graph made of it.

Owned buffers (parameters, module buffers, inputs), calls with the buffers they make, and layers are three
sequences. Each is divided into segments: a plain one, or a loop over the equal blocks of the model, upwards
in the forward pass and downwards in the backward pass. A loop stores its first and last blocks and one of
those between, which stands for any number of them.

A reference to a buffer or a call is a whole number, counted within the same block of the same segment, or
`[segment, origin, block, number]` where `block` is counted from the referring block (`RELATIVE`), from the
first (`FROM_START`) or from the last (`FROM_END`).

Sizes are expressions of named sizes, 2·batch·width/3 + 1, exact in whole numbers: a whole number, a list of
terms `[numerator, denominator, *symbols]` that are added up, or `["ceil", divisor, term]`. A `Fitter` finds
the expression behind values that were seen at several points.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

from foretrain.workloads.graph import Buffer, Call, Graph, Layer, Nature, Phase, Role, Spec
from foretrain.workloads.options import ResolvedOptions

RELATIVE, FROM_START, FROM_END = 0, 1, 2
LAYERS = "layers"
"""The named size that says how many blocks there are."""
OWN_PARAMETERS = "own"
"""Stands for the number of parameters of a layer: those named after it."""
SIZE = "size"
"""The key of a setting that is a size."""
Expression = Any
"""A whole number, or a list as described above: what JSON holds."""
Point = Mapping[str, int]
CEIL = "ceil"
_DIVISORS = (2, 64, 64 * 256)
"""Of four-bit weights: two share a byte, 64 a scale, and 256 scales another (`lora_layers`)."""
_MULTIPLES = (1, 2, 3, 4)
"""Of a square matrix: queries, keys and values by one product, or a feed-forward network."""
_MOST_FACTORS = 6
"""Of one term: a square matrix of group · heads · head width has six."""
_MOST_FACTORS_IN_SUMS = 4


class NotCovered(Exception):
    """A recording that does not hold for the sizes asked for."""


class NotWhole(Exception):
    """A size that would not be a whole number: the recording does not cover these sizes."""


class NoExpression(Exception):
    """Values that follow no expression of the named sizes."""


@dataclass(frozen=True)
class Template:
    """The tables of one recording, as JSON holds them; see the module's text."""

    tables: Mapping[str, Any]

    @cached_property
    def _edge(self) -> int:
        return int(self.tables["edge"])

    def _values_at(self, sizes: Mapping[str, int]) -> list[int]:
        return [evaluate(each, sizes) for each in self.tables["expressions"]]

    def specs_at(self, sizes: Mapping[str, int]) -> list[Spec]:
        """The specs at given sizes, in the order of the tables."""
        values = self._values_at(sizes)
        return [Spec(tuple([values[dim] for dim in dims]), dtype) for dims, dtype in self.tables["specs"]]

    def counts_at(self, sizes: Mapping[str, int]) -> tuple[int, int]:
        """Samples and tokens of a step at given sizes."""
        samples, tokens = self.tables["counts"]
        return evaluate(samples, sizes), evaluate(tokens, sizes)

    def blocks_at(self, sizes: Mapping[str, int]) -> int:
        """Number of times a loop runs; raises `NotCovered` for a depth that has no recording."""
        if LAYERS not in sizes or not self._edge:
            return 0
        blocks, rest = divmod(sizes[LAYERS], self.tables["period"])
        if rest or blocks < self.tables["least"]:
            raise NotCovered(f"{sizes[LAYERS]} layers")
        return int(blocks)

    def graph_at(self, sizes: Mapping[str, int], options: ResolvedOptions) -> Graph:
        """The graph at given sizes, without an optimizer."""
        unrolling = _Unrolling(self.tables, self.blocks_at(sizes), self._edge, self._values_at(sizes))
        return unrolling.graph(self.specs_at(sizes), self.counts_at(sizes), options)


class _Instance(NamedTuple):
    """One block of a loop, or a plain segment: what is stored of it and where its items begin."""

    stored: Any
    block: int
    items: int
    buffers: int


class _Unrolling:
    """One graph being made: the segments of a template with every block in its place."""

    def __init__(self, tables: Mapping[str, Any], blocks: int, edge: int, values: Sequence[int]) -> None:
        self._tables = tables
        self._values = values
        self._blocks = blocks
        self._edge = edge
        owned = self._place(tables["owned"], 0)
        self._owned = owned
        self._calls = self._place(
            tables["calls"], sum(len(each.stored["items"]) for s in owned for each in s)
        )
        self._in_order = [each for segment in self._calls for each in segment]
        self._by_block = [sorted(segment, key=lambda each: each.block) for segment in self._calls]
        self._owned_by_block = [sorted(segment, key=lambda each: each.block) for segment in owned]

    def _place(self, segments: Sequence[Any], buffers: int) -> list[list[_Instance]]:
        """The instances of every segment, in the order they run, each with where its items begin."""
        placed, items = [], 0
        for segment in segments:
            instances = []
            for block, stored in self._instances(segment):
                instances.append(_Instance(stored, block, items, buffers))
                items += len(stored["items"])
                buffers += len(stored.get("buffers", ()))
            placed.append(instances)
        return placed

    def _instances(self, segment: Any) -> Iterator[tuple[int, Any]]:
        if "items" in segment:
            yield 0, segment
            return
        order = range(self._blocks)
        for block in reversed(order) if segment["down"] else order:
            if block < self._edge:
                yield block, segment["first"][block]
            elif block >= self._blocks - self._edge:
                yield block, segment["last"][block - (self._blocks - self._edge)]
            else:
                yield block, segment["middle"]

    def graph(
        self,
        specs: list[Spec],
        counts: tuple[int, int],
        options: ResolvedOptions,
    ) -> Graph:
        tables = self._tables
        buffers, trained = self._list_owned()
        calls = self._list_calls(buffers)
        return Graph(
            specs=tuple(specs),
            calls=tuple(calls),
            buffers=tuple(buffers),
            layers=tuple(self._list_layers(specs, buffers)),
            batch=counts[0],
            samples=counts[0],
            tokens=counts[1],
            options=options,
            trained=tuple(trained),
            notes=tuple(tables["notes"]),
        )

    def _name(self, stored: Any, block: int) -> str:
        if isinstance(stored, str):
            return stored
        before, offset, after = stored
        return f"{before}{self._tables['period'] * block + offset}{after}"

    def _find(
        self, instances: Sequence[Sequence[_Instance]], reference: Any, own: int
    ) -> tuple[_Instance, int]:
        segment, origin, block, number = reference
        if origin == RELATIVE:
            block += own
        elif origin == FROM_END:
            block += self._blocks - 1
        placed = instances[segment]
        return placed[block if len(placed) > 1 else 0], number

    def _list_owned(self) -> tuple[list[Buffer], list[str]]:
        roles = {role.value: role for role in Role}
        names = self._tables["names"]
        end = sum(len(each.stored["items"]) for each in self._in_order)
        buffers, trained = [], []
        for segment in self._owned:
            for instance in segment:
                for spec, role, name, is_trained, born, dies in instance.stored["items"]:
                    text = self._name(names[name], instance.block)
                    last = end if dies is None else self._call(dies, instance)
                    buffers.append(Buffer(spec, born, last, roles[role], text))
                    if is_trained:
                        trained.append(text)
        return buffers, trained

    def _call(self, reference: Any, instance: _Instance) -> int:
        target, number = self._find(self._by_block, reference, instance.block)
        return target.items + number

    def _buffer(self, reference: Any, instance: _Instance) -> int:
        if reference[0] < 0:  # an owned one
            target, number = self._find(
                self._owned_by_block, (-1 - reference[0], *reference[1:]), instance.block
            )
            return target.items + number
        target, number = self._find(self._by_block, reference, instance.block)
        return target.buffers + number

    def _list_calls(self, buffers: list[Buffer]) -> list[Call]:
        """All calls; the buffers they make are added to `buffers`."""
        tables = self._tables
        values = self._values
        signatures = [
            (
                name,
                Phase(phase),
                tuple(inputs),
                tuple(outputs),
                {key: _resolve(value, values) for key, value in settings.items()},
                Nature(nature),
                recomputed,
            )
            for name, phase, inputs, outputs, settings, nature, recomputed in tables["signatures"]
        ]
        roles = {role.value: role for role in Role}
        names = tables["names"]
        end = sum(len(each.stored["items"]) for each in self._in_order)
        # Runs for every call of a deep model. What JSON reads as a whole number is exactly an int, so that
        # `__class__ is int`, which is faster, does for `isinstance`.
        calls: list[Call] = []
        for instance in self._in_order:
            at, made, block = instance.items, instance.buffers, instance.block
            texts: dict[int, str] = {}
            for number, (signature, module, reads, writes, forward) in enumerate(instance.stored["items"]):
                name, phase, inputs, outputs, settings, nature, recomputed = signatures[signature]
                if module not in texts:
                    texts[module] = self._name(names[module], block)
                calls.append(
                    Call(
                        name,
                        phase,
                        texts[module],
                        inputs,
                        outputs,
                        tuple(
                            [
                                made + each if each.__class__ is int else self._buffer(each, instance)
                                for each in reads
                            ]
                        ),
                        tuple(
                            [
                                made + each if each.__class__ is int else self._buffer(each, instance)
                                for each in writes
                            ]
                        ),
                        settings,
                        nature,
                        None
                        if forward is None
                        else at + number + forward
                        if forward.__class__ is int
                        else self._call(forward, instance),
                        recomputed,
                    )
                )
            for spec, role, name, born, dies in instance.stored["buffers"]:
                if dies.__class__ is int:
                    last = at + born + dies
                else:
                    last = end if dies is None else self._call(dies, instance)
                buffers.append(Buffer(spec, at + born, last, roles[role], self._name(names[name], block)))
        return calls

    def _list_layers(self, specs: list[Spec], buffers: list[Buffer]) -> Iterator[Layer]:
        own: dict[str, int] = {}
        for buffer in buffers:
            if buffer.role is Role.PARAMETER:
                path = buffer.name.rpartition(".")[0]
                own[path] = own.get(path, 0) + specs[buffer.spec].elements
        names = self._tables["names"]
        for segment in self._place(self._tables["layers"], 0):
            for instance in segment:
                for name, kind, outputs, parameters in instance.stored["items"]:
                    path = self._name(names[name], instance.block)
                    count = own.get(path, 0) if parameters == OWN_PARAMETERS else self._values[parameters]
                    yield Layer(path, kind, tuple(outputs), count)


def _resolve(setting: Any, values: Sequence[int]) -> Any:
    """The value of a setting: sizes in it are numbers of expressions under `SIZE`."""
    if isinstance(setting, dict):
        return values[setting[SIZE]]
    return [_resolve(each, values) for each in setting] if isinstance(setting, list) else setting


def evaluate(expression: Expression, sizes: Point) -> int:
    """The value of an expression; raises `NotWhole` where it has none."""
    if isinstance(expression, int):
        return expression
    if expression[0] == CEIL:
        _, divisor, term = expression
        return -(-evaluate([term], sizes) // int(divisor))
    total, divided = 0, 1
    for numerator, denominator, *symbols in expression:
        total = total * denominator + divided * numerator * math.prod([sizes[each] for each in symbols])
        divided *= denominator
    whole, rest = divmod(total, divided)
    if rest or whole < 0:
        raise NotWhole(f"{expression} at {dict(sizes)}")
    return whole


class Fitter:
    """Finds expressions through values at given points; the simplest first, each found once."""

    def __init__(self, points: Sequence[Point]) -> None:
        symbols = [name for name in points[0] if len({point[name] for point in points}) > 1]
        self._monomials = [
            (chosen, tuple(math.prod(point[name] for name in chosen) for point in points))
            for factors in range(1, _MOST_FACTORS + 1)
            for chosen in itertools.combinations_with_replacement(symbols, factors)
        ]
        self._known: dict[tuple[int, ...], Expression] = {}

    def fit(self, values: Sequence[int]) -> Expression:
        """The expression with these values at the points; raises `NoExpression`."""
        key = tuple(values)
        if len(set(key)) == 1:
            return key[0]
        if key not in self._known:
            self._known[key] = self._find(key)
        return self._known[key]

    def _find(self, values: tuple[int, ...]) -> Expression:
        for symbols, at_points in self._monomials:
            ratio = Fraction(values[0], at_points[0])
            if all(ratio * each == value for value, each in zip(values, at_points, strict=True)):
                return [[ratio.numerator, ratio.denominator, *symbols]]
        for (symbols, at_points), times, divisor in itertools.product(self._monomials, _MULTIPLES, _DIVISORS):
            if all(
                -(-times * each // divisor) == value for value, each in zip(values, at_points, strict=True)
            ):
                return [CEIL, divisor, [times, 1, *symbols]]
        constant: tuple[tuple[str, ...], tuple[int, ...]] = ((), (1,) * len(values))
        simple = [each for each in self._monomials if len(each[0]) <= _MOST_FACTORS_IN_SUMS]
        pairs = itertools.chain(((one, constant) for one in simple), itertools.combinations(simple, 2))
        for (symbols, one), (others, two) in pairs:
            terms = _solve(values, one, two)
            if terms is not None:
                share, other = terms
                return [
                    [share.numerator, share.denominator, *symbols],
                    [other.numerator, other.denominator, *others],
                ]
        raise NoExpression(f"{values} follow no expression of the named sizes")


def _solve(values: Sequence[int], one: Sequence[int], two: Sequence[int]) -> tuple[Fraction, Fraction] | None:
    """The two shares with values = share · one + other · two at all points, if there are any."""
    determinant = one[0] * two[1] - one[1] * two[0]
    if not determinant:
        return None
    numerator = values[0] * two[1] - values[1] * two[0]
    # Most pairs fail at a third point: integers first, fractions only for those that pass.
    other = one[0] * values[1] - one[1] * values[0]
    for value, first, second in zip(values[2:], one[2:], two[2:], strict=True):
        if numerator * first + other * second != value * determinant:
            return None
    return Fraction(numerator, determinant), Fraction(other, determinant)
