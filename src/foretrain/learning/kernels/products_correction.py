"""Fits `prediction.operators.corrections`: boosted trees on what the model of products leaves."""

from __future__ import annotations

import numpy as np

from foretrain.learning.kernels.products_fit import Sample
from foretrain.prediction.operators.corrections import BOUND, features
from foretrain.prediction.operators.table import Floats
from foretrain.prediction.operators.trees import Forest, from_lightgbm

_ROUNDS = 80
_SETTINGS = {
    "objective": "l1",
    "learning_rate": 0.15,
    "num_leaves": 31,
    "min_data_in_leaf": 20,
    "max_depth": 8,
    "verbosity": -1,
    "num_threads": 2,
    "seed": 1,
    "deterministic": True,
    "force_row_wise": True,
}
_SHORTEST_SECONDS = 5e-7


def fit_trees(part: Sample, modelled: Floats) -> Forest:
    """Trees of log(measured / modelled), a measurement counting by how much of it is kernel, not harness."""
    import lightgbm

    kernel = np.maximum(part.seconds - part.floor_seconds, _SHORTEST_SECONDS)
    departure = np.clip(np.log(kernel / modelled), -BOUND, BOUND)
    inputs = features(part.work, part.device, modelled)
    data = lightgbm.Dataset(inputs, departure, weight=kernel / part.seconds)
    return from_lightgbm(lightgbm.train(_SETTINGS, data, _ROUNDS).dump_model())
