"""Boosted trees as arrays."""

from __future__ import annotations

import numpy as np
import pytest
from calibration.boosted_trees import from_lightgbm

from foretrain.facts.calibrations import Forest, ForestFile, load_forest

STUMP = {
    "split_feature": 1,
    "threshold": 0.5,
    "decision_type": "<=",
    "left_child": {"leaf_value": -1.0},
    "right_child": {
        "split_feature": 0,
        "threshold": 2.0,
        "decision_type": "<=",
        "left_child": {"leaf_value": 3.0},
        "right_child": {"leaf_value": 5.0},
    },
}
ROWS = np.array([[9.0, 0.5], [2.0, 0.6], [2.1, 0.6]])


def forest(*trees: object) -> Forest:
    """A forest of trees written by hand."""
    return from_lightgbm({"tree_info": [{"tree_structure": tree} for tree in trees]})


def test_rows_walk_left_up_to_the_threshold() -> None:
    assert forest(STUMP).predict(ROWS).tolist() == [-1.0, 3.0, 5.0]


def test_trees_of_any_depth_add_up() -> None:
    trees = forest(STUMP, {"leaf_value": 10.0})
    assert trees.predict(ROWS).tolist() == [9.0, 13.0, 15.0]


def test_what_is_stored_comes_back() -> None:
    trees = forest(STUMP, STUMP)
    again = load_forest({name[2:]: np.asarray(array) for name, array in trees.arrays("a/").items()})
    assert again.predict(ROWS).tolist() == trees.predict(ROWS).tolist()


def test_other_splits_are_refused() -> None:
    with pytest.raises(ValueError, match="=="):
        forest({**STUMP, "decision_type": "=="})


def test_agrees_with_lightgbm() -> None:
    import lightgbm

    random = np.random.default_rng(0)
    inputs = random.normal(size=(500, 4)).astype(np.float32).astype(float)
    target = inputs[:, 0] * inputs[:, 1] + np.sin(inputs[:, 2])
    settings = {"num_leaves": 15, "verbosity": -1, "seed": 1, "num_threads": 1}
    booster = lightgbm.train(settings, lightgbm.Dataset(inputs, target), 30)
    ours = from_lightgbm(booster.dump_model()).predict(inputs)
    agree = np.isclose(ours, booster.predict(inputs), atol=1e-4)
    assert agree.mean() > 0.99  # thresholds are rounded to 32 bits


def test_trees_of_a_shipped_file_are_read_by_key() -> None:
    shipped = ForestFile("products_trees.npz", ("tensor:",))
    assert "tensor:9.0:layer" in set(shipped)
    assert not any(key.startswith("lanes:") for key in shipped)
    assert shipped.get("lanes:8.0:layer") is None
    assert shipped["tensor:9.0:layer"] is shipped["tensor:9.0:layer"]
