"""What a technique of regression is: it fits a sample and returns a predictor that can be written as JSON.

A predictor holds numbers only, and predicts with numpy (LightGBM: with its own library) from them. The one
that was just fitted and the one that was read from a file are the same object, so a saved model predicts
exactly as the one that was judged, whatever version of scikit-learn is installed.

Every `Technique` in the modules of this package is found by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, final

import numpy as np

from foretrain.learning.regression.columns import Schema
from foretrain.learning.regression.table import Sample
from foretrain.learning.regression.terms import Term, format_terms, matrix, term_from
from foretrain.prediction.operators.pricing import Floats
from foretrain.registry import Registry, discover

Parameters = Mapping[str, float | int | str]


class Predictor(ABC):
    """A fitted model: encoded rows to values of the target."""

    @abstractmethod
    def predict(self, rows: Floats) -> Floats:
        """The target at encoded rows."""

    @abstractmethod
    def to_plain(self) -> dict[str, Any]:
        """All it needs, as JSON has it."""

    def formula(self) -> str:
        """The model as an equation; empty where it has none."""
        return ""


class Technique(ABC):
    """A way to fit. Final classes are found in the files of this folder."""

    name: ClassVar[str]
    about: ClassVar[str]

    def lacks(self, schema: Schema) -> str:
        """What a table must have besides for this technique; empty if nothing is missing."""
        del schema
        return ""

    def grid(self) -> tuple[Parameters, ...]:
        """The hyper-parameters to choose among."""
        return ({},)

    @abstractmethod
    def fit(self, sample: Sample, parameters: Parameters) -> Predictor:
        """Fit these rows and no others: whatever is learned about features is learned here."""

    @abstractmethod
    def read(self, plain: Mapping[str, Any], schema: Schema) -> Predictor:
        """The predictor that `to_plain` wrote; KeyError, TypeError or ValueError for anything else."""


@final
@dataclass(frozen=True, eq=False)
class LinearPredictor(Predictor):
    """b0 + Σ b · φ, or its exponential (`is_log`): a power law where φ are logarithms."""

    schema: Schema
    terms: tuple[Term, ...]
    coefficients: tuple[float, ...]
    is_log: bool = False

    def __post_init__(self) -> None:
        if len(self.coefficients) != len(self.terms) + 1 or not np.isfinite(self.coefficients).all():
            raise ValueError(f"{len(self.coefficients)} coefficients of {len(self.terms)} terms")

    def predict(self, rows: Floats) -> Floats:
        """The sum, at least 0 unless it is an exponent."""
        total = self.coefficients[0] + matrix(self.terms, self.schema, rows) @ np.array(self.coefficients[1:])
        return np.asarray(np.exp(total) if self.is_log else np.maximum(total, 0.0))

    def to_plain(self) -> dict[str, Any]:
        """Terms and coefficients."""
        return {
            "terms": [term.to_plain() for term in self.terms],
            "coefficients": list(self.coefficients),
            "is_log": self.is_log,
        }

    def formula(self) -> str:
        """The sum of its terms that count."""
        kept = [
            (value, term) for value, term in zip(self.coefficients[1:], self.terms, strict=True) if value != 0
        ]
        text = format_terms([self.coefficients[0], *(value for value, _ in kept)], [term for _, term in kept])
        return f"exp({text})" if self.is_log else text


def read_linear(plain: Mapping[str, Any], schema: Schema) -> LinearPredictor:
    """A linear predictor from plain data."""
    return LinearPredictor(
        schema, terms_from(plain["terms"], schema), floats(plain["coefficients"]), bool(plain["is_log"])
    )


def terms_from(plain: Sequence[Mapping[str, Any]], schema: Schema) -> tuple[Term, ...]:
    """Terms of a schema."""
    return tuple(term_from(each, schema) for each in plain)


def floats(values: Sequence[Any]) -> tuple[float, ...]:
    """Finite numbers."""
    numbers = tuple(float(value) for value in values)
    if not np.isfinite(numbers).all():
        raise ValueError("numbers that are not finite")
    return numbers


@cache
def techniques() -> Registry[Technique]:
    """Every technique defined beside this file."""
    known = tuple(discover(__name__, Technique))  # type: ignore[type-abstract]
    return Registry("technique", known, name=lambda each: each.name, hint="Known: " + ", ".join(
        sorted(each.name for each in known)))  # fmt: skip
