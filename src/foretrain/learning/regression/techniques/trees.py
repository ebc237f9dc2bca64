"""Forests of trees over logarithms. Trees do not extrapolate: beyond the rows, they repeat the last ones.

References: L. Breiman, "Random forests", Machine Learning 45, 2001; G. Ke et al., "LightGBM: a highly
efficient gradient boosting decision tree", NIPS 2017.
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
from foretrain.prediction.operators.pricing import Floats
from foretrain.ties import round_digits

_TREES = 100
_LEAF = -1


@final
@dataclass(frozen=True, eq=False)
class Tree:
    """Nodes in arrays: where to go from each, by which term at which threshold, and the value of a leaf."""

    left: Any
    right: Any
    feature: Any
    threshold: Floats
    value: Floats

    def __post_init__(self) -> None:
        sizes = {len(each) for each in (self.left, self.right, self.feature, self.threshold, self.value)}
        ends = max(int(self.left.max()), int(self.right.max()))
        if len(sizes) != 1 or ends >= len(self.left):
            raise ValueError("a tree whose arrays do not fit")

    def values(self, columns: Floats) -> Floats:
        """The leaf of every row."""
        nodes = np.zeros(len(columns), int)
        rows = np.arange(len(columns))
        while (inner := self.left[nodes] != _LEAF).any():
            goes_left = columns[rows, self.feature[nodes]] <= self.threshold[nodes]
            following = np.where(goes_left, self.left[nodes], self.right[nodes])
            nodes = np.where(inner, following, nodes)
        return np.asarray(self.value[nodes])


@final
@dataclass(frozen=True, eq=False)
class ForestPredictor(Predictor):
    """The exponential of the mean over trees."""

    schema: Schema
    terms: tuple[Term, ...]
    trees: tuple[Tree, ...]

    def predict(self, rows: Floats) -> Floats:
        """The mean of all trees; thresholds are those of single precision, as they were learned."""
        columns = matrix(self.terms, self.schema, rows).astype(np.float32).astype(float)
        return np.asarray(np.exp(np.mean([tree.values(columns) for tree in self.trees], axis=0)))

    def to_plain(self) -> dict[str, Any]:
        """The arrays of all trees."""
        return {
            "terms": [term.to_plain() for term in self.terms],
            "trees": [
                {
                    "left": tree.left.tolist(),
                    "right": tree.right.tolist(),
                    "feature": tree.feature.tolist(),
                    "threshold": tree.threshold.tolist(),
                    "value": tree.value.tolist(),
                }
                for tree in self.trees
            ],
        }


class RandomForest(Technique):
    """Random forest."""

    name = "forest"
    about = "random forest of logarithms; does not extrapolate"

    def grid(self) -> tuple[Parameters, ...]:
        """Size of leaves, share of features at a split."""
        return ({"leaf": 1, "features": 1.0}, {"leaf": 1, "features": 0.5}, {"leaf": 3, "features": 1.0})

    def fit(self, sample: Sample, parameters: Parameters) -> ForestPredictor:
        """Trees on samples with replacement."""
        from sklearn.ensemble import RandomForestRegressor

        terms = log_terms(sample)
        forest = RandomForestRegressor(
            _TREES, min_samples_leaf=int(parameters["leaf"]), max_features=float(parameters["features"]),
            random_state=0,
        )  # fmt: skip
        forest.fit(
            round_digits(matrix(terms, sample.schema, sample.rows), 12),
            round_digits(np.log(sample.measured), 12),
        )
        trees = tuple(_tree(each.tree_) for each in forest.estimators_)
        return ForestPredictor(sample.schema, terms, trees)

    def read(self, plain: Mapping[str, Any], schema: Schema) -> ForestPredictor:
        """From the arrays of all trees."""
        terms = terms_from(plain["terms"], schema)
        trees = tuple(
            Tree(
                np.array(each["left"], int), np.array(each["right"], int), np.array(each["feature"], int),
                np.array(each["threshold"], float), np.array(each["value"], float),
            )
            for each in plain["trees"]
        )  # fmt: skip
        if not trees or any(int(tree.feature.max()) >= len(terms) for tree in trees):
            raise ValueError("trees that split by terms the file does not have")
        return ForestPredictor(schema, terms, trees)


def _tree(learned: Any) -> Tree:
    return Tree(
        learned.children_left, learned.children_right, np.maximum(learned.feature, 0), learned.threshold,
        learned.value[:, 0, 0],
    )  # fmt: skip


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
