"""Four techniques that weight terms by coefficients, from the freest to the most bound by what is known.

**Linear regression with stepwise selection of terms**, as in Gianniti et al. 2019 [1]:

    t = b0 + Σ b_k · φ_k ,   φ_k = [iterations] · f or f · g ,   f, g among x and 1/x

of all features, and indicators of categories. Terms enter and leave by partial F-tests. Errors count relative
to the time (weights 1/t²), since runs differ by orders of magnitude.

**Ridge regression of logarithms**: a power law with a factor for each category.

    t = exp(b0) · Π x^b · Π exp(b [category])

Coefficients of standardised logarithms shrink to 0, so that no category or feature is trusted more than its
rows allow. `sequential` first chooses features one by one, each the one that helps cross-validation most.

**Non-negative least squares** [2]: every term adds time, none takes any away. A sum of times cannot be
negative, so coefficients that are not extrapolate without falling below zero. Terms are those of the linear
regression to their natural power (with the work, against the speed).

**Ernest** [3]: time over machines from four terms that distributed jobs are made of.

    t = θ0 + θ1 · work / machines + θ2 · log(machines) + θ3 · machines ,   θ >= 0

a fixed cost, computation that divides, a tree of messages, and what grows with every machine. The work of one
machine is its batch; where a table has the global batch, it is divided by the GPUs.

References:
[1] E. Gianniti, L. Zhang, D. Ardagna, "Performance prediction of GPU-based deep learning applications",
    CLOSER 2019, 279-286.
[2] C. L. Lawson, R. J. Hanson, "Solving least squares problems", Prentice-Hall 1974, chapter 23.
[3] S. Venkataraman et al., "Ernest: efficient performance prediction for large-scale advanced analytics",
    NSDI 2016.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretrain.learning.regression.columns import BATCH, GPUS, ITERATIONS, Schema
from foretrain.learning.regression.table import Sample
from foretrain.learning.regression.techniques._base import LinearPredictor, Parameters, Technique, read_linear
from foretrain.learning.regression.terms import (
    ENTER,
    FIGURES,
    NAMED,
    Term,
    candidates,
    is_natural,
    log_terms,
    matrix,
    select,
)
from foretrain.prediction.operators.pricing import Floats
from foretrain.ties import first_of_least

_MOST_TERMS = 40
STRICT = 0.05
_RIDGE = 1e-8
GLOBAL_BATCH = "global_batch"
_LEAST_ROWS_FOR_SELECTION = 12
"""With fewer rows the folds of a selection have too few to rank terms by."""
_FOLDS = 3
_ALPHA_OF_SELECTION = 0.1
_LEAST_GAIN = 0.01
"""A further term must lower the error by 1 %, or the selection ends."""
_SAME_ERROR = 1e-6


class Linear(Technique):
    """Stepwise linear regression (Draper and Smith)."""

    name = "linear"
    about = "linear regression, terms chosen by partial F-tests (Draper and Smith)"

    def grid(self) -> tuple[Parameters, ...]:
        """Thresholds of the F-tests, and how devices are known."""
        return (
            {"enter": ENTER, "device": NAMED},
            {"enter": STRICT, "device": NAMED},
            {"enter": ENTER, "device": FIGURES},
        )

    def fit(self, sample: Sample, parameters: Parameters) -> LinearPredictor:
        """The terms that are significant in these rows."""
        offered = candidates(sample, parameters["device"])
        columns = matrix(offered, sample.schema, sample.rows)
        enter = float(parameters["enter"])
        most = min(max(0, len(sample) - 2), _MOST_TERMS)
        chosen = select(columns, sample.measured, sample.measured**-2.0, enter, enter, most)
        terms = tuple(offered[index] for index in chosen.terms)
        return LinearPredictor(sample.schema, terms, tuple(chosen.coefficients.tolist()))

    def read(self, plain: Mapping[str, Any], schema: Schema) -> LinearPredictor:
        """From terms and coefficients."""
        return read_linear(plain, schema)


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


class Ernest(Technique):
    """The terms of Ernest, non-negative."""

    name = "ernest"
    about = "Ernest: fixed, divided, logarithmic and linear in the GPUs, non-negative"

    def lacks(self, schema: Schema) -> str:
        """A number of GPUs that varies."""
        return "" if schema.with_role(GPUS) is not None else "a number of GPUs (column gpus) that varies"

    def fit(self, sample: Sample, parameters: Parameters) -> LinearPredictor:
        """Relative errors least; each category has its own four terms."""
        del parameters
        return non_negative(sample, _terms(sample))

    def read(self, plain: Mapping[str, Any], schema: Schema) -> LinearPredictor:
        """From terms and coefficients."""
        return read_linear(plain, schema)


def _terms(sample: Sample) -> list[Term]:
    schema = sample.schema
    gpus, batch = schema.with_role(GPUS), schema.with_role(BATCH)
    assert gpus is not None, "checked by `lacks`"
    terms = [Term(logs=(gpus.name,)), Term(((gpus.name, 1),))]
    if batch is not None:
        terms.append(Term(((batch.name, 1),)))
    elif GLOBAL_BATCH in schema.names:
        terms.append(Term(((GLOBAL_BATCH, 1), (gpus.name, -1))))
    else:
        terms.append(Term(((gpus.name, -1),)))
    iterations = schema.with_role(ITERATIONS)
    if iterations is None:
        return terms
    return [Term((*term.powers, (iterations.name, 1)), term.logs) for term in terms] + terms


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
