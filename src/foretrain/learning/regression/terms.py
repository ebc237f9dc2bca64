"""Terms of a regression: products of features to some power, logarithms, and indicators of categories.

    φ = Π x^p · Π log(x) · Π [column = category]

`candidates` are the terms that a technique may choose from: every feature and its inverse, and all products
of two. Iterations multiply: a run of twice as many has every term once more, so they have no inverse. A
feature of fewer than four values has one power only, since x and 1/x together would join the dots and mislead
beyond them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np

from foretrain.learning.regression.columns import (
    DEVICE,
    ITERATIONS,
    NATURAL_POWER,
    PREDICTED,
    Feature,
    Schema,
)
from foretrain.learning.regression.table import Sample
from foretrain.prediction.operators.listing import Floats

_TOGETHER = 2
"""How many features a product has, iterations not counted."""
_LEAST_VALUES_OF_A_CURVE = 4
_SAME = 1e-9


@dataclass(frozen=True)
class Term:
    """One product."""

    powers: tuple[tuple[str, int], ...] = ()
    logs: tuple[str, ...] = ()
    equals: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        over = [name for name, power in self.powers if power > 0]
        over += [f"log({name})" for name in self.logs]
        over += [f"[{name} = {category}]" for name, category in self.equals]
        under = [name for name, power in self.powers if power < 0]
        return " / ".join([" · ".join(over) or "1", *under])

    def values(self, schema: Schema, rows: Floats) -> Floats:
        """The term at encoded rows."""
        result = np.ones(len(rows))
        for name, power in self.powers:
            result = result * rows[:, schema.place(name)] ** float(power)
        for name in self.logs:
            result = result * np.log(rows[:, schema.place(name)])
        for name, category in self.equals:
            place = schema.place(name)
            result = result * (rows[:, place] == schema.features[place].categories.index(category))
        return result

    def to_plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"powers": dict(self.powers), "logs": list(self.logs), "equals": dict(self.equals)}


def term_from(plain: Mapping[str, Any], schema: Schema) -> Term:
    """The term of plain data; names it has and the schema has not raise KeyError."""
    term = Term(
        tuple((str(name), int(power)) for name, power in plain["powers"].items()),
        tuple(str(name) for name in plain["logs"]),
        tuple((str(name), str(category)) for name, category in plain["equals"].items()),
    )
    known = set(schema.names)
    unknown = {name for name, _ in (*term.powers, *term.equals)} | set(term.logs)
    if unknown - known:
        raise KeyError(f"terms of unknown columns {sorted(unknown - known)}")
    return term


def matrix(terms: Sequence[Term], schema: Schema, rows: Floats) -> Floats:
    """Terms in columns."""
    if not terms:
        return np.zeros((len(rows), 0))
    return np.column_stack([term.values(schema, rows) for term in terms])


def powers_of(feature: Feature, values: Floats) -> tuple[int, ...]:
    """Both powers where there are values enough for a curve; the natural one where there are not."""
    if float(values.min()) <= 0:
        return (1,)
    natural = NATURAL_POWER.get(feature.role or "", 1)
    return (1, -1) if len(np.unique(values)) >= _LEAST_VALUES_OF_A_CURVE else (natural,)


def varying(sample: Sample) -> tuple[Feature, ...]:
    """The features of numbers that vary among these rows; the prediction is no feature of a black box."""
    return tuple(
        each
        for each in sample.schema.numbers(without=(PREDICTED,))
        if np.ptp(sample.column(each.name)) > _SAME * float(np.abs(sample.column(each.name)).max())
    )


NAMED, FIGURES = "named", "figures"
"""Whether devices have offsets of their own, or are known by their figures alone, as new ones are."""


def candidates(sample: Sample, device: object = NAMED) -> tuple[Term, ...]:
    """All terms a regression may choose among, of the rows it is fitted to."""
    powers = {each.name: powers_of(each, sample.column(each.name)) for each in varying(sample)}
    plain = list(_products(powers))
    indicators = indicators_of(sample, device)
    simple = [term for term in plain if _factors(term) <= 1 or is_natural(term)]
    mixed = [Term(term.powers, (), each.equals) for each in indicators for term in simple]
    return (*plain, *indicators, *mixed)


def indicators_of(sample: Sample, device: object = NAMED) -> tuple[Term, ...]:
    """One indicator for each category these rows have."""
    has_figures = any(each.of_device for each in sample.schema.features)
    return tuple(
        Term(equals=((feature.name, feature.categories[int(code)]),))
        for feature in sample.schema.texts
        if not (device == FIGURES and has_figures and feature.role == DEVICE)
        for code in np.unique(sample.column(feature.name)).tolist()
        if code >= 0
    )


def is_natural(term: Term) -> bool:
    """Whether every feature has its natural power: with the work, against the speed."""
    return all(power == NATURAL_POWER.get(Feature(name).role or "", 1) for name, power in term.powers)


def _factors(term: Term) -> int:
    return sum(not _is_iterations(name) for name, _ in term.powers)


def _products(powers: Mapping[str, Sequence[int]]) -> Iterator[Term]:
    scaled = [((name, 1),) for name in powers if _is_iterations(name)]
    others = [name for name in powers if not _is_iterations(name)]
    yield from (Term(each) for each in scaled)
    for count in range(1, _TOGETHER + 1):
        for names in combinations(others, count):
            for chosen in product(*(powers[name] for name in names)):
                own = tuple(zip(names, chosen, strict=True))
                yield Term(own)
                yield from (Term((*own, *each)) for each in scaled)


def _is_iterations(name: str) -> bool:
    return Feature(name).role == ITERATIONS


def log_terms(sample: Sample, device: object = NAMED) -> tuple[Term, ...]:
    """Logarithms of the numbers that are above 0 and vary (others as they are), and the indicators."""
    logs = tuple(
        Term(logs=(each.name,)) if float(sample.column(each.name).min()) > 0 else Term(((each.name, 1),))
        for each in varying(sample)
    )
    return (*logs, *indicators_of(sample, device))


def formatted(coefficients: Sequence[float], terms: Sequence[Term]) -> str:
    """`0.01 + 0.002 · (batch)`, the constant first."""
    parts = [f"{coefficients[0]:.4g}"]
    for value, term in zip(coefficients[1:], terms, strict=True):
        parts.append(f"{'-' if value < 0 else '+'} {math.fabs(value):.4g} · ({term})")
    return " ".join(parts)
