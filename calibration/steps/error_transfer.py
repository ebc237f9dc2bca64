"""How errors transfer between devices and models: variance components of timm's steps on two GPUs.

Every step is predicted by a fit that saw neither its family nor, on the RTX 4090, its GPU. With
r = μ + a_device + b_model + c_(device, model) + e, all independent, products of two residuals estimate the
variances (method of moments; C. R. Henderson, "Estimation of variance and covariance components", Biometrics
9, 1953):

    same device, other model   μ² + σ²_device
    same model, other device   μ² + σ²_model
    same of both               μ² + σ²_device + σ²_model + σ²_both
    neither                    μ²
    with itself                all of them and σ²_noise
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from calibration.steps import mixed_precision as mixed
from calibration.steps.class_times import ClassTimes
from foretrain.errors import InvalidRequest
from foretrain.prediction.cost_models.user_timings import FILE as FILE
from foretrain.prediction.cost_models.user_timings import VarianceComponents
from foretrain.prediction.operators.listing import Floats

_WILD = 1.0
"""Residuals beyond e to this power are cut to it: a few networks run kernels no class knows."""


def variance_components(
    log_residuals: Sequence[float] | Floats, models: Sequence[str], devices: Sequence[str]
) -> VarianceComponents:
    """The variances of log(measured / predicted), by what they belong to; none is negative.

    Needs at least two models on each of two devices. Where no pair was measured in two configurations, what
    belongs to the pair cannot be separated from the rest and counts as noise.
    """
    residuals = np.asarray(log_residuals, float)
    model_of, device_of = _numbered(models), _numbered(devices)
    if not len(residuals) == len(model_of) == len(device_of):
        raise InvalidRequest("residuals, models and devices must be as many")
    if len(set(models)) < 2 or len(set(devices)) < 2:
        raise InvalidRequest("variances of models and devices need at least two of each")
    pair_of = model_of * (device_of.max() + 1) + device_of
    by_device, by_model, by_pair = (_products(residuals, group) for group in (device_of, model_of, pair_of))
    everything = _products(residuals, np.zeros(len(residuals), int))
    both = _mean(by_pair)
    device_only, model_only = _mean(by_device - by_pair), _mean(by_model - by_pair)
    neither = _mean(everything - by_device - by_model + by_pair)
    base = 0.0 if np.isnan(neither) else neither
    device = max(0.0, np.nan_to_num(device_only) - base)
    model = max(0.0, np.nan_to_num(model_only) - base)
    rest = max(0.0, float(np.mean(residuals**2)) - base - device - model)
    interaction = 0.0 if np.isnan(both) else min(max(0.0, both - base - device - model), rest)
    return VarianceComponents(float(device), float(model), float(interaction), float(rest - interaction))


def _numbered(names: Sequence[str]) -> np.ndarray:
    return np.unique(np.asarray(names), return_inverse=True)[1]


def _products(residuals: Floats, group: np.ndarray) -> np.ndarray:
    """Sum of the products of all ordered pairs within groups, and how many pairs there are."""
    sums, squares = np.bincount(group, residuals), np.bincount(group, residuals**2)
    counts = np.bincount(group).astype(float)
    return np.array([np.sum(sums**2 - squares), np.sum(counts * (counts - 1))])


def _mean(products: np.ndarray) -> float:
    return float(products[0] / products[1]) if products[1] > 0 else float("nan")


def calibrate(data: Path, graphs: Path) -> Mapping[str, Any]:
    """The content of the calibration file."""
    times = mixed.priced(data, graphs)
    residuals = np.clip(np.log(times.measured / _unseen(times)), -_WILD, _WILD)
    models = [step.wanted.model for step in times.steps]
    components = variance_components(residuals, models, times.device_ids.tolist())
    counts = {name: int((times.device_ids == name).sum()) for name in (mixed.FITTED, mixed.JUDGED)}
    return {"data": [{"source": "timm", "steps": counts}], "variance": asdict(components)}


def _unseen(times: ClassTimes) -> Floats:
    """Seconds of each step, its family left out; on the judged GPU too."""
    predicted = mixed.family_unseen(times)
    there = times.device_ids == mixed.JUDGED
    for fitted, _ in mixed.folds(times):
        families = set(times.families[fitted].tolist())
        left_out = there & np.array([name not in families for name in times.families])
        if left_out.any():
            predicted[left_out] = mixed.learn(times.where(fitted)).predict(times.where(left_out))
    return predicted
