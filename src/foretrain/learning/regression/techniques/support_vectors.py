"""Support-vector regression of logarithms with a radial kernel.

Reference: H. Drucker et al., "Support vector regression machines", NIPS 1996.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, final

import numpy as np

from foretrain.learning.regression.columns import Schema
from foretrain.learning.regression.table import Sample
from foretrain.learning.regression.techniques._base import (
    Parameters,
    Predictor,
    Technique,
    floats,
    terms_from,
)
from foretrain.learning.regression.terms import Term, log_terms, matrix
from foretrain.prediction.operators.pricing import Floats
from foretrain.ties import round_digits


@final
@dataclass(frozen=True, eq=False)
class KernelPredictor(Predictor):
    """exp(b + Σ w · exp(-γ |z - s|²)) of standardised terms z and support vectors s."""

    schema: Schema
    terms: tuple[Term, ...]
    mean: Floats
    scale: Floats
    support: Floats
    weights: Floats
    intercept: float
    gamma: float

    def __post_init__(self) -> None:
        shape = (len(self.weights), len(self.terms))
        if self.support.shape != shape or not len(self.mean) == len(self.scale) == len(self.terms):
            raise ValueError(f"support vectors of shape {self.support.shape}, not {shape}")

    def predict(self, rows: Floats) -> Floats:
        """The kernel sum."""
        z = (matrix(self.terms, self.schema, rows) - self.mean) / self.scale
        squares = ((z[:, None, :] - self.support[None, :, :]) ** 2).sum(axis=2)
        return np.asarray(np.exp(self.intercept + np.exp(-self.gamma * squares) @ self.weights))

    def to_plain(self) -> dict[str, Any]:
        """Support vectors and weights."""
        return {
            "terms": [term.to_plain() for term in self.terms],
            "mean": self.mean.tolist(),
            "scale": self.scale.tolist(),
            "support": self.support.tolist(),
            "weights": self.weights.tolist(),
            "intercept": self.intercept,
            "gamma": self.gamma,
        }


class SupportVectors(Technique):
    """Support-vector regression."""

    name = "svr"
    about = "support-vector regression of logarithms, radial kernel"

    def grid(self) -> tuple[Parameters, ...]:
        """Penalty and width of the kernel."""
        return tuple({"C": c, "gamma": gamma} for c, gamma in product((10.0, 100.0), (0.03, 0.2)))

    def fit(self, sample: Sample, parameters: Parameters) -> KernelPredictor:
        """A pipeline of scaling and SVR."""
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
        from sklearn.svm import SVR

        terms, gamma = log_terms(sample), float(parameters["gamma"])
        regression = SVR(C=float(parameters["C"]), gamma=gamma, epsilon=0.01)
        pipeline = make_pipeline(StandardScaler(), regression)
        pipeline.fit(
            round_digits(matrix(terms, sample.schema, sample.rows), 12),
            round_digits(np.log(sample.measured), 12),
        )
        scaler, svr = pipeline[0], pipeline[-1]
        return KernelPredictor(
            sample.schema, terms, scaler.mean_, scaler.scale_, svr.support_vectors_, svr.dual_coef_[0],
            float(svr.intercept_[0]), gamma,
        )  # fmt: skip

    def read(self, plain: Mapping[str, Any], schema: Schema) -> KernelPredictor:
        """From support vectors and weights."""
        terms = terms_from(plain["terms"], schema)
        support = np.array(plain["support"], float).reshape(len(plain["weights"]), len(terms))
        return KernelPredictor(
            schema, terms, np.array(floats(plain["mean"])), np.array(floats(plain["scale"])), support,
            np.array(floats(plain["weights"])), float(plain["intercept"]), float(plain["gamma"]),
        )  # fmt: skip
