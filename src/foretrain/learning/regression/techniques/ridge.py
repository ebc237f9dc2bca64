"""Ridge regression of logarithms: a power law with a factor for each category.

    t = exp(b0) · Π x^b · Π exp(b [category])

Coefficients of standardised logarithms shrink to 0, so that no category or feature is trusted more than its
rows allow. `sequential` first chooses features one by one, each the one that helps cross-validation most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretrain.learning.regression.columns import Schema
from foretrain.learning.regression.table import Sample
from foretrain.learning.regression.techniques._base import LinearPredictor, Parameters, Technique, read_linear
from foretrain.learning.regression.terms import FIGURES, NAMED, Term, log_terms, matrix
from foretrain.prediction.operators.listing import Floats
from foretrain.ties import first_of_least

_LEAST_ROWS_FOR_SELECTION = 12
_FOLDS = 3
_ALPHA_OF_SELECTION = 0.1
_LEAST_GAIN = 0.01
_SAME_ERROR = 1e-6


class Ridge(Technique):
    """Ridge regression of logarithms."""

    name = "ridge"
    about = "ridge regression of logarithms: a power law, with sequential feature selection"

    def grid(self) -> tuple[Parameters, ...]:
        """How strongly coefficients shrink, selection of features, and how devices are known."""
        plain: tuple[Parameters, ...] = tuple(
            {"alpha": alpha, "features": "all", "device": NAMED} for alpha in (0.001, 0.1, 1.0, 10.0)
        )
        return (
            *plain,
            {"alpha": 0.1, "features": "sequential", "device": NAMED},
            {"alpha": 0.1, "features": "all", "device": FIGURES},
        )

    def fit(self, sample: Sample, parameters: Parameters) -> LinearPredictor:
        """A pipeline of scaling, selection and ridge; its coefficients are put back on the plain terms."""
        from sklearn.linear_model import Ridge as RidgeRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        terms = log_terms(sample, parameters["device"])
        columns, logs = matrix(terms, sample.schema, sample.rows), np.log(sample.measured)
        is_selected = parameters["features"] == "sequential" and len(sample) >= _LEAST_ROWS_FOR_SELECTION
        chosen = _sequential(terms, columns, logs) if is_selected else np.ones(len(terms), bool)
        pipeline = make_pipeline(StandardScaler(), RidgeRegression(alpha=float(parameters["alpha"])))
        pipeline.fit(columns[:, chosen], logs)
        scaler, ridge = pipeline[0], pipeline[-1]
        slopes = ridge.coef_ / scaler.scale_
        constant = float(ridge.intercept_ - slopes @ scaler.mean_)
        kept = tuple(term for term, is_kept in zip(terms, chosen.tolist(), strict=True) if is_kept)
        return LinearPredictor(sample.schema, kept, (constant, *slopes.tolist()), is_log=True)

    def read(self, plain: Mapping[str, Any], schema: Schema) -> LinearPredictor:
        """From terms and coefficients."""
        return read_linear(plain, schema)


def _sequential(terms: Sequence[Term], columns: Floats, logs: Floats) -> NDArray[np.bool_]:
    """Forward selection of whole table columns, until cross-validation gains less than a hundredth."""
    from sklearn.linear_model import Ridge as RidgeRegression
    from sklearn.model_selection import cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    owners = [_column_of(term) for term in terms]
    names = list(dict.fromkeys(owners))

    def error(chosen: Sequence[str]) -> float:
        kept = [place for place, owner in enumerate(owners) if owner in chosen]
        model = make_pipeline(StandardScaler(), RidgeRegression(alpha=_ALPHA_OF_SELECTION))
        scores = cross_val_score(model, columns[:, kept], logs, cv=_FOLDS, scoring="neg_mean_absolute_error")
        return -float(np.mean(scores))

    chosen: list[str] = []
    reached = float("inf")
    while len(chosen) < len(names):
        errors = {name: error([*chosen, name]) for name in names if name not in chosen}
        best = list(errors)[first_of_least(errors.values(), _SAME_ERROR)]
        if errors[best] > reached * (1 - _LEAST_GAIN):
            break
        chosen.append(best)
        reached = errors[best]
    return np.array([owner in chosen for owner in owners], bool)


def _column_of(term: Term) -> str:
    return (*term.logs, *(name for name, _ in (*term.powers, *term.equals)))[0]
