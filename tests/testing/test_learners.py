"""Every technique of regression against the suite that learners must pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.support.timing_tables import jobs, sample

from foretrain.learning.regression.model import Evidence, LearnedModel, load, save
from foretrain.learning.regression.techniques._base import techniques
from foretrain.prediction.operators.pricing import Floats
from foretrain.testing import LearnerSuite

ROWS = jobs()
UNSEEN = {"model": "large", "device": "rtx3090", "batch": 256, "gpus": 8, "predicted_seconds": 0.3}


class RegressionSuite(LearnerSuite):
    """A technique fitted to two networks on three GPUs."""

    technique: ClassVar[str]

    def fit(self) -> LearnedModel:
        technique, known = techniques()[self.technique], sample(ROWS)
        parameters = technique.grid()[0]
        fitted = technique.fit(known, parameters)
        evidence = Evidence("rows", len(ROWS), len(known), "random", 0.1)
        return LearnedModel(technique.name, parameters, "seconds", known.schema, fitted, evidence, 0.9, 1.1)

    def predict(self, model: LearnedModel) -> Floats:
        rows = [{name: value for name, value in row.items() if name != "seconds"} for row in ROWS]
        return np.array([each.p50 for each in model.predict([*rows, UNSEEN])])

    def save(self, model: LearnedModel, folder: Path) -> Path:
        save(model, folder / "model.json")
        return folder / "model.json"

    def load(self, path: Path) -> LearnedModel:
        return load(path)


def suite_of(name: str) -> type[Any]:
    """The suite of one technique."""
    return type(f"Test{name.title().replace('-', '')}", (RegressionSuite,), {"technique": name})


TestLinear = suite_of("linear")
TestRidge = suite_of("ridge")
TestNnls = suite_of("nnls")
TestErnest = suite_of("ernest")
TestSvr = suite_of("svr")
TestForest = suite_of("forest")
TestBoosting = suite_of("boosting")
TestGrayBox = suite_of("gray-box")


def test_no_technique_is_left_out() -> None:
    tested = {
        each.technique for name, each in globals().items() if name.startswith("Test") and each.__bases__
    }
    assert tested == set(techniques())


@pytest.mark.parametrize("name", ["svr", "forest", "boosting"])
def test_a_predictor_is_the_model_of_the_library_it_was_fitted_with(name: str) -> None:
    """Predictions by numpy from plain arrays equal those of scikit-learn and LightGBM."""
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVR

    from foretrain.learning.regression.terms import log_terms, matrix
    from foretrain.ties import round_digits

    known = sample(ROWS)
    technique = techniques()[name]
    columns = round_digits(matrix(log_terms(known), known.schema, known.rows), 12)
    logs = round_digits(np.log(known.measured), 12)
    theirs: Floats
    if name == "svr":
        library = make_pipeline(StandardScaler(), SVR(C=10.0, gamma=0.03, epsilon=0.01))
        theirs = library.fit(columns, logs).predict(columns)
    elif name == "forest":
        library = RandomForestRegressor(100, random_state=0, min_samples_leaf=1, max_features=1.0)
        theirs = library.fit(columns, logs).predict(columns)
    else:
        import lightgbm

        fitted: Any = technique.fit(known, technique.grid()[0])
        theirs = np.asarray(lightgbm.Booster(model_str=fitted.text).predict(columns), float)
    ours = technique.fit(known, technique.grid()[0]).predict(known.rows)
    assert ours == pytest.approx(np.exp(theirs), rel=1e-9)
