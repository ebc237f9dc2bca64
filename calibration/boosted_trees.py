"""Trees that LightGBM fitted, as the arrays that ship."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from foretrain.facts.calibrations import ARRAYS, Forest


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
