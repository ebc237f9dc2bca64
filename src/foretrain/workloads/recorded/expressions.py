"""Sizes as expressions of named sizes: 2·batch·width/3 + 1, exact in whole numbers.

An expression is a whole number, a list of terms `[numerator, denominator, *symbols]` that are added up, or
`["ceil", divisor, term]`. `fit` finds the expression behind values that were seen at several points.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

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


class NotWhole(Exception):
    """A size that would not be a whole number: the recording does not cover these sizes."""


class NoExpression(Exception):
    """Values that follow no expression of the named sizes."""


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
