"""Boosted trees as arrays, evaluated with numpy and stored without pickle.

A forest predicts the sum of one leaf per tree. At a node a row goes left if feature <= threshold. Leaves are
stored in the same arrays as nodes and are their own children, so that every row takes `depth` steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretrain.prediction.operators.listing import Floats

ARRAYS = ("feature", "threshold", "left", "right", "value", "roots")


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees in arrays, nodes of all trees one after another; `roots` holds the first node of each."""

    feature: NDArray[np.int16]
    threshold: NDArray[np.float32]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: NDArray[np.float32]
    roots: NDArray[np.int32]
    depth: int

    def predict(self, features: Floats) -> Floats:
        """The sum over trees for each row of `features` (rows x features)."""
        known = features.astype(np.float32)
        rows = np.arange(len(known))[:, None]
        at = np.broadcast_to(self.roots, (len(known), len(self.roots)))
        for _ in range(self.depth):
            goes_left = known[rows, self.feature[at]] <= self.threshold[at]
            at = np.where(goes_left, self.left[at], self.right[at])
        return np.asarray(self.value[at].sum(axis=1, dtype=float))

    def arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """The arrays to store, by name."""
        return {f"{prefix}{name}": getattr(self, name) for name in (*ARRAYS, "depth")}


def load_forest(arrays: Mapping[str, NDArray[Any]], prefix: str) -> Forest:
    """A forest from arrays stored by `Forest.arrays`."""
    parts = {name: arrays[prefix + name] for name in ARRAYS}
    return Forest(**parts, depth=int(arrays[prefix + "depth"]))


def from_lightgbm(dump: Mapping[str, Any]) -> Forest:
    """A forest from `lightgbm.Booster.dump_model()`; only numeric splits without missing values."""
    columns: dict[str, list[float]] = {name: [] for name in ARRAYS}
    depth = 0
    for tree in dump["tree_info"]:
        columns["roots"].append(len(columns["value"]))
        depth = max(depth, _add(tree["tree_structure"], columns))
    return Forest(
        feature=np.array(columns["feature"], np.int16),
        threshold=np.array(columns["threshold"], np.float32),
        left=np.array(columns["left"], np.int32),
        right=np.array(columns["right"], np.int32),
        value=np.array(columns["value"], np.float32),
        roots=np.array(columns["roots"], np.int32),
        depth=depth,
    )


def _add(node: Mapping[str, Any], columns: dict[str, list[float]]) -> int:
    """Append a node and its descendants; returns the depth below it."""
    here = len(columns["value"])
    is_leaf = "leaf_value" in node
    columns["feature"].append(0 if is_leaf else node["split_feature"])
    columns["threshold"].append(0.0 if is_leaf else node["threshold"])
    columns["value"].append(node["leaf_value"] if is_leaf else 0.0)
    columns["left"].append(here)
    columns["right"].append(here)
    if is_leaf:
        return 0
    if node["decision_type"] != "<=":
        raise ValueError(
            f"cannot store a split by {node['decision_type']!r}; only numeric splits are supported"
        )
    columns["left"][here] = len(columns["value"])
    below = _add(node["left_child"], columns)
    columns["right"][here] = len(columns["value"])
    return 1 + max(below, _add(node["right_child"], columns))
