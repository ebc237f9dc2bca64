"""Gradient boosting of logarithms with LightGBM. Trees do not extrapolate.

Reference: G. Ke et al., "LightGBM: a highly efficient gradient boosting decision tree", NIPS 2017.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any, final

import numpy as np

from foretrain.errors import MissingData
from foretrain.learning.regression.columns import Schema
from foretrain.learning.regression.table import Sample
from foretrain.learning.regression.techniques._base import Parameters, Predictor, Technique, terms_from
from foretrain.learning.regression.terms import Term, log_terms, matrix
from foretrain.prediction.operators.listing import Floats
from foretrain.ties import round_digits


@final
@dataclass(frozen=True, eq=False)
class BoostedPredictor(Predictor):
    """The exponential of a LightGBM model; `text` is its own format."""

    schema: Schema
    terms: tuple[Term, ...]
    text: str
    booster: Any

    def predict(self, rows: Floats) -> Floats:
        """The sum over all trees."""
        columns = matrix(self.terms, self.schema, rows)
        return np.asarray(np.exp(self.booster.predict(columns, num_threads=1)))

    def to_plain(self) -> dict[str, Any]:
        """LightGBM's text."""
        return {"terms": [term.to_plain() for term in self.terms], "lightgbm": self.text}


class Boosting(Technique):
    """Gradient boosting."""

    name = "boosting"
    about = "gradient boosting of logarithms (LightGBM); does not extrapolate"

    def lacks(self, schema: Schema) -> str:
        """LightGBM."""
        del schema
        try:
            _lightgbm()
        except MissingData as reason:
            return str(reason)
        return ""

    def grid(self) -> tuple[Parameters, ...]:
        """Leaves and rounds."""
        return tuple({"leaves": leaves, "rounds": rounds} for leaves, rounds in product((7, 31), (100, 300)))

    def fit(self, sample: Sample, parameters: Parameters) -> BoostedPredictor:
        """Squared errors of logarithms, one thread, a fixed seed."""
        lightgbm = _lightgbm()
        terms = log_terms(sample)
        data = lightgbm.Dataset(
            round_digits(matrix(terms, sample.schema, sample.rows), 12),
            round_digits(np.log(sample.measured), 12),
            params={"verbose": -1},
        )
        options = {
            "objective": "regression", "num_leaves": int(parameters["leaves"]), "learning_rate": 0.1,
            "min_data_in_leaf": 3, "min_data_in_bin": 1, "num_threads": 1, "seed": 0, "deterministic": True,
            "force_row_wise": True, "verbose": -1,
        }  # fmt: skip
        booster = lightgbm.train(options, data, int(parameters["rounds"]))
        return _read(booster.model_to_string(), terms, sample.schema)

    def read(self, plain: Mapping[str, Any], schema: Schema) -> BoostedPredictor:
        """From LightGBM's text."""
        return _read(str(plain["lightgbm"]), terms_from(plain["terms"], schema), schema)


def _read(text: str, terms: tuple[Term, ...], schema: Schema) -> BoostedPredictor:
    lightgbm = _lightgbm()
    if not text.startswith("tree\n"):
        raise ValueError("not the text of a LightGBM model")
    try:
        booster = lightgbm.Booster(model_str=text)
    except lightgbm.basic.LightGBMError as error:
        raise ValueError(f"not the text of a LightGBM model: {error}") from error
    if booster.num_feature() != len(terms):
        raise ValueError(f"a LightGBM model of {booster.num_feature()} terms where the file has {len(terms)}")
    return BoostedPredictor(schema, terms, text, booster)


def _lightgbm() -> Any:
    try:
        return import_module("lightgbm")
    except ImportError as error:
        raise MissingData("LightGBM: pip install 'foretrain[learn]'") from error
    except OSError:
        return _with_openmp_of_torch()


def _with_openmp_of_torch() -> Any:
    """LightGBM on a machine without the OpenMP runtime of GCC: PyTorch brings one along."""
    torch = find_spec("torch")
    for folder in () if torch is None else torch.submodule_search_locations or ():
        for library in Path(folder, "lib").glob("libgomp.so*"):
            ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    try:
        return import_module("lightgbm")
    except OSError as error:
        raise MissingData(f"LightGBM, which needs OpenMP ({error}): apt-get install libgomp1") from error
