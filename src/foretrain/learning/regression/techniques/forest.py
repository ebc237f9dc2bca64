"""Random forest of logarithms. Trees do not extrapolate: beyond the rows, they repeat the last ones.

Reference: L. Breiman, "Random forests", Machine Learning 45, 2001.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from foretrain.learning.regression.columns import Schema
from foretrain.learning.regression.table import Sample
from foretrain.learning.regression.techniques._base import Parameters, Predictor, Technique, terms_from
from foretrain.learning.regression.terms import Term, log_terms, matrix
from foretrain.prediction.operators.listing import Floats
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


class Forest(Technique):
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
