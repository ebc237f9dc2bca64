"""Linear regression with stepwise selection of terms, as the seed of this library had it.

    t = b0 + Σ b_k · φ_k ,   φ_k = [iterations] · f or f · g ,   f, g among x and 1/x

of all features, and indicators of categories. Terms enter and leave by partial F-tests. Errors count relative
to the time (weights 1/t²), since runs differ by orders of magnitude.

Reference: E. Gianniti, L. Zhang, D. Ardagna, "Performance prediction of GPU-based deep learning
applications", CLOSER 2019, 279-286.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from foretrain.learning.regression.columns import Schema
from foretrain.learning.regression.stepwise import ENTER, select
from foretrain.learning.regression.table import Sample
from foretrain.learning.regression.techniques._base import LinearPredictor, Parameters, Technique, read_linear
from foretrain.learning.regression.terms import FIGURES, NAMED, candidates, matrix

_MOST_TERMS = 40
STRICT = 0.05


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
