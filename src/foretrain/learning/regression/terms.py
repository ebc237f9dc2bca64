"""Terms of a regression, and their stepwise selection.

A term is a product of features to some power, logarithms, and indicators of categories:

    φ = Π x^p · Π log(x) · Π [column = category]

`candidates` are the terms that a technique may choose from: every feature and its inverse, and all products
of two. Iterations multiply: a run of twice as many has every term once more, so they have no inverse. A
feature of fewer than four values has one power only, since x and 1/x together would join the dots and mislead
beyond them.

In stepwise regression terms enter and leave by their partial F-tests, until nothing changes. At every step
the term that explains most of what is left enters if its partial F is significant at `enter`; then the
weakest term chosen leaves if it no longer is at `leave`. With leave >= enter this cannot go round in circles.
Terms that are (nearly) a combination of those chosen never enter. Rows may be weighted; the constant is
always in. Columns are scaled to length one and what is chosen is kept orthogonal (QR), so that features of
very different size do no harm.

Reference: N. R. Draper, H. Smith, "Applied regression analysis", 3rd ed., Wiley 1998, chapter 15.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretrain.learning.regression.columns import (
    DEVICE,
    ITERATIONS,
    NATURAL_POWER,
    PREDICTED,
    Feature,
    Schema,
)
from foretrain.learning.regression.table import Sample
from foretrain.prediction.operators.pricing import Floats
from foretrain.ties import first_of_least, first_of_most

_TOGETHER = 2
"""How many features a product has, iterations not counted."""
_LEAST_VALUES_OF_A_CURVE = 4
_SAME = 1e-9
NAMED, FIGURES = "named", "figures"
"""Whether devices have offsets of their own, or are known by their figures alone, as new ones are."""
ENTER, LEAVE = 0.15, 0.15
"""Chosen among four pairs (0.05 to 0.25) on PROFET: with nine repeats they do not differ; from three single
timings, batches of 128 and 256 are 12.9 % off at 0.05, 8.5 % at 0.15 and 7.3 % at 0.25."""
_INDEPENDENT = 1e-8
"""The least share of a column's length that must be new to those chosen."""
_SAME_GAIN = 1e-9
"""Collinear terms explain the same but for rounding: the first of them enters."""
_EXACT = 1e-18
"""A share of the squares left below which a fit counts as exact."""


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


def format_terms(coefficients: Sequence[float], terms: Sequence[Term]) -> str:
    """`0.01 + 0.002 · (batch)`, the constant first."""
    parts = [f"{coefficients[0]:.4g}"]
    for value, term in zip(coefficients[1:], terms, strict=True):
        parts.append(f"{'-' if value < 0 else '+'} {math.fabs(value):.4g} · ({term})")
    return " ".join(parts)


@dataclass(frozen=True, eq=False)
class TermSelection:
    """The terms chosen, in the order of their columns, and the least-squares fit on them.

    `coefficients` and `covariance` have the constant first; `covariance` is (X'WX)⁻¹, to be multiplied by a
    variance. `basis` spans the chosen columns, weighted and orthonormal.
    """

    terms: tuple[int, ...]
    coefficients: Floats
    covariance: Floats
    residuals: Floats
    basis: Floats
    freedom: int

    def left_out(self, groups: NDArray[np.int64]) -> Floats:
        """The weighted residuals rows would have, had the fit been made without their whole group.

        (I - H_gg)⁻¹ r_g for every group g of rows, H the projection onto the chosen columns.
        """
        residuals = np.zeros(len(self.residuals))
        for group in np.unique(groups):
            rows = np.flatnonzero(groups == group)
            kept = np.eye(len(rows)) - self.basis[rows] @ self.basis[rows].T
            residuals[rows] = np.linalg.lstsq(kept, self.residuals[rows], rcond=_INDEPENDENT)[0]
        return residuals


def select(
    columns: Floats,
    response: Floats,
    weights: Floats | None = None,
    enter: float = ENTER,
    leave: float = LEAVE,
    most: int | None = None,
) -> TermSelection:
    """Choose among `columns` (rows x candidates) those that predict `response`; at most `most` of them."""
    if not 0 < enter <= leave < 1:
        raise ValueError(f"thresholds must keep 0 < enter <= leave < 1, got enter {enter}, leave {leave}")
    root = np.ones(len(response)) if weights is None else np.sqrt(weights)
    problem = _Problem(columns * root[:, None], response * root, root)
    limit = min(columns.shape[1], len(response) - 2, *([] if most is None else [most]))
    chosen: tuple[int, ...] = ()
    seen: set[tuple[int, ...]] = set()
    while chosen not in seen:
        seen.add(chosen)
        grown = problem.entering(chosen, enter) if len(chosen) < limit else None
        chosen = chosen if grown is None else tuple(sorted((*chosen, grown)))
        weakest = problem.leaving(chosen, leave)
        chosen = tuple(term for term in chosen if term != weakest)
    return problem.fit(chosen)


@dataclass(frozen=True, eq=False)
class _Problem:
    """Weighted columns, weighted response, and the weighted constant."""

    columns: Floats
    response: Floats
    constant: Floats

    def entering(self, chosen: tuple[int, ...], enter: float) -> int | None:
        """The term with the largest partial F among those left, if it is significant."""
        basis, _ = np.linalg.qr(self._design(chosen))
        left = self.response - basis @ (basis.T @ self.response)
        new = self.columns - basis @ (basis.T @ self.columns)
        new -= basis @ (basis.T @ new)  # once more: rounding of the first pass
        length = np.sum(new**2, axis=0)
        usable = length > _INDEPENDENT * np.sum(self.columns**2, axis=0)
        usable[list(chosen)] = False
        squares = float(left @ left)
        if not usable.any() or squares <= _EXACT * float(self.response @ self.response):
            return None
        gain = np.where(usable, (new.T @ left) ** 2 / np.where(usable, length, 1.0), -1.0)
        best = first_of_most(gain, _SAME_GAIN)
        freedom = len(self.response) - len(chosen) - 2
        return best if _tail(_ratio(float(gain[best]), squares, freedom), freedom) < enter else None

    def leaving(self, chosen: tuple[int, ...], leave: float) -> int | None:
        """The term with the smallest partial F among those chosen, if it is not significant."""
        if not chosen:
            return None
        fit = self.fit(chosen)
        variance = float(fit.residuals @ fit.residuals) / fit.freedom
        spread = np.maximum(np.diag(fit.covariance)[1:] * variance, np.finfo(float).tiny)
        partial = fit.coefficients[1:] ** 2 / spread
        # of equally weak terms the last leaves, as the first enters
        weakest = len(partial) - 1 - first_of_least(partial[::-1] / max(float(partial.max()), 1e-300))
        return chosen[weakest] if _tail(float(partial[weakest]), fit.freedom) > leave else None

    def fit(self, chosen: tuple[int, ...]) -> TermSelection:
        """Least squares on the terms chosen and the constant."""
        design = self._design(chosen)
        scale = np.sqrt(np.sum(design**2, axis=0))
        basis, upper = np.linalg.qr(design / scale)
        inverse = np.linalg.inv(upper)
        residuals = self.response - basis @ (basis.T @ self.response)
        return TermSelection(
            terms=chosen,
            coefficients=inverse @ (basis.T @ self.response) / scale,
            covariance=inverse @ inverse.T / np.outer(scale, scale),
            residuals=residuals,
            basis=basis,
            freedom=len(self.response) - len(chosen) - 1,
        )

    def _design(self, chosen: tuple[int, ...]) -> Floats:
        return np.column_stack([self.constant, self.columns[:, list(chosen)]])


def _ratio(gain: float, squares: float, freedom: int) -> float:
    """The partial F of a term that takes `gain` off the squares left."""
    rest = squares - gain
    return np.inf if rest <= 0 else gain / (rest / freedom)


def _tail(ratio: float, freedom: int) -> float:
    """The probability of a partial F of one term above `ratio`."""
    from scipy.special import fdtrc

    return float(fdtrc(1, freedom, ratio))
