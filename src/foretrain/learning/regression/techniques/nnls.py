"""Non-negative least squares: every term adds time, none takes any away.

A sum of times cannot be negative, so coefficients that are not extrapolate without falling below zero. Terms
are those of the linear regression to their natural power (with the work, against the speed).

Reference: C. L. Lawson, R. J. Hanson, "Solving least squares problems", Prentice-Hall 1974, chapter 23.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from foretrain.learning.regression.columns import Schema
from foretrain.learning.regression.table import Sample
from foretrain.learning.regression.techniques._base import LinearPredictor, Parameters, Technique, read_linear
from foretrain.learning.regression.terms import FIGURES, NAMED, Term, candidates, is_natural, matrix

_RIDGE = 1e-8


class NonNegative(Technique):
    """Non-negative least squares."""

    name = "nnls"
    about = "non-negative least squares: every term adds time"

    def grid(self) -> tuple[Parameters, ...]:
        """How devices are known."""
        return ({"device": NAMED}, {"device": FIGURES})

    def fit(self, sample: Sample, parameters: Parameters) -> LinearPredictor:
        """Relative errors least."""
        natural = [term for term in candidates(sample, parameters["device"]) if is_natural(term)]
        return non_negative(sample, natural)

    def read(self, plain: Mapping[str, Any], schema: Schema) -> LinearPredictor:
        """From terms and coefficients."""
        return read_linear(plain, schema)


def non_negative(sample: Sample, terms: Sequence[Term]) -> LinearPredictor:
    """Non-negative coefficients of a constant and some terms; terms without any are dropped."""
    from scipy.optimize import nnls

    design = np.column_stack([np.ones(len(sample)), matrix(terms, sample.schema, sample.rows)])
    weighted = design / sample.measured[:, None]
    scale = np.sqrt((weighted**2).sum(axis=0))
    scale[scale == 0] = 1.0
    count = design.shape[1]
    ridge = np.sqrt(_RIDGE) * np.eye(count)  # of collinear terms each takes its share: one solution, not many
    rows = np.concatenate([weighted / scale, ridge])
    coefficients = nnls(rows, np.append(np.ones(len(sample)), np.zeros(count)), maxiter=50 * count)[0] / scale
    kept = [index for index, value in enumerate(coefficients[1:].tolist()) if value > 0]
    chosen = (float(coefficients[0]), *(float(coefficients[1 + index]) for index in kept))
    return LinearPredictor(sample.schema, tuple(terms[index] for index in kept), chosen)
