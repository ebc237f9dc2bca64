"""Fits `prediction.operators.corrections`: boosted trees on what the model of products leaves."""

from __future__ import annotations

import numpy as np

from foretrain.learning.kernels.products_fit import BEFORE_KERNEL, Sample
from foretrain.prediction.operators.corrections import BOUND, features
from foretrain.prediction.operators.listing import Floats
from foretrain.prediction.operators.trees import Forest, from_lightgbm

_ROUNDS = 80
_SETTINGS = {
    "objective": "l1",
    "learning_rate": 0.15,
    "num_leaves": 31,
    "min_data_in_leaf": 20,
    "max_depth": 8,
    "verbosity": -1,
    "num_threads": 1,
    "seed": 1,
    "deterministic": True,
    "force_row_wise": True,
}
_VISIBLE = 1.15
"""How much longer than the rest of the dispatch a kernel must be to show in the time measured."""
_HIDDEN_WEIGHT = 0.1


def fit_trees(part: Sample, modelled: Floats) -> Forest:
    """Trees of log(measured / modelled), a measurement counting by how much of it is kernel, not harness.

    Kernels that the harness hides tell nothing; they count a little for the model as it is.
    """
    import lightgbm

    kernel = part.seconds - BEFORE_KERNEL * part.floor_seconds
    is_hidden = kernel < _VISIBLE * (1 - BEFORE_KERNEL) * part.floor_seconds
    kernel = np.where(is_hidden, modelled, kernel)
    departure = np.clip(np.log(kernel / modelled), -BOUND, BOUND)
    weight = np.where(is_hidden, _HIDDEN_WEIGHT, kernel / part.seconds)
    inputs = features(part.work, part.device, modelled)
    data = lightgbm.Dataset(inputs, departure, weight=weight)
    return from_lightgbm(lightgbm.train(_SETTINGS, data, _ROUNDS).dump_model())
