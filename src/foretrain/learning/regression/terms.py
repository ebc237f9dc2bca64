"""The terms offered to an end-to-end regression: features, their inverses, and products of two."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

ITERATIONS = "iterations"
FEATURES = ("batch", "gpus", "gflop_per_second", "threads", "disk_delay_seconds", ITERATIONS)
_TOGETHER = 2
"""How many features a cross term has, iterations not counted."""
_TELL_A_CURVE = 4
"""Values of a feature below which x and 1/x together would only join the dots, and mislead beyond them."""
_NATURAL = {
    "batch": 1,
    "gpus": 1,
    "gflop_per_second": -1,
    "threads": -1,
    "disk_delay_seconds": 1,
    ITERATIONS: 1,
}
"""How time goes with each feature, the others kept: with the work, against the speed."""


@dataclass(frozen=True)
class Term:
    """A product of features, each to the power 1 or -1."""

    powers: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        over = [name for name, power in self.powers if power > 0]
        under = [name for name, power in self.powers if power < 0]
        return " / ".join([" · ".join(over) or "1", *under])

    def value(self, features: Mapping[str, float]) -> float:
        """The term at some features."""
        return math.prod(features[name] ** power for name, power in self.powers)


def candidates(powers: Mapping[str, Sequence[int]]) -> tuple[Term, ...]:
    """All terms of features that vary, each to the powers it may have."""
    return tuple(_terms(powers))


def _terms(powers: Mapping[str, Sequence[int]]) -> Iterator[Term]:
    scaled = [((ITERATIONS, 1),)] if ITERATIONS in powers else []
    others = [name for name in powers if name != ITERATIONS]
    yield from (Term(each) for each in scaled)
    for count in range(1, _TOGETHER + 1):
        for names in combinations(others, count):
            for chosen in product(*(powers[name] for name in names)):
                own = tuple(zip(names, chosen, strict=True))
                yield Term(own)
                yield from (Term((*own, *each)) for each in scaled)


def powers_of(name: str, values: Sequence[float]) -> tuple[int, ...]:
    """Both powers where there are values enough to tell a curve; the natural one where there are not."""
    if min(values) <= 0:
        return (1,)
    return (1, -1) if len(set(values)) >= _TELL_A_CURVE else (_NATURAL[name],)
