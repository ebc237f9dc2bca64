"""Fits `prediction.mixed_precision` on timm's steps on an RTX 3090; steps on an RTX 4090 are held out.

Factors of classes of kernels are fitted to whole steps in logarithms, shrunk to 1:

    minimise  sum_i rho( log sum_c exp(x_c) T_ic - log y_i ) + pull · sum_c x_c²

Every step is a sum over classes, so factors stay positive and a class that few steps have stays near 1.
Boosted trees correct what is left.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration import files
from calibration.boosted_trees import from_lightgbm
from calibration.datasets import timm_benchmark
from calibration.datasets.timm_benchmark import TimmStep
from calibration.datasets.timm_models import name_hash
from calibration.steps.class_times import ClassTimes, class_times
from foretrain.facts.calibrations import Forest
from foretrain.facts.devices import device
from foretrain.prediction.operators import matrix
from foretrain.prediction.operators.matrix import headroom
from foretrain.prediction.operators.mixed_precision import BOUND, TREES, step_features
from foretrain.prediction.operators.mixed_precision import FILE as FILE
from foretrain.prediction.operators.pricing import Flags, Floats

_FACTOR_ITERATIONS = 40
_FACTOR_TOLERANCE = 1e-5
_LARGEST_STEP = 0.5
FITTED, JUDGED = "rtx3090", "rtx4090"
_POWER_LIMITED = "l40s"
"""The measured board for graphics whose power limits it."""
_PER_FAMILY = 5
"""Forward passes looked at of each family: there are 2,871, and tracing takes a second each."""
_BUSY = 1.5
"""How much longer than its launches a step must be to show kernel times."""
_SEEN_SHARE = 1e-3
_ROUNDS = 300
_SETTINGS = {
    "objective": "l1",
    "learning_rate": 0.05,
    "num_leaves": 8,
    "min_data_in_leaf": 8,
    "lambda_l2": 1.0,
    "feature_fraction": 0.5,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
    "verbosity": -1,
    "num_threads": 1,
    "seed": 1,
    "deterministic": True,
    "force_row_wise": True,
}
_EMPTY = from_lightgbm({"tree_info": []})


def fit_factors(seconds: Floats, measured: Floats, pull: float = 0.1, scale: float = 0.1) -> Floats:
    """The factor of each class (column) that makes the rows' sums come near the measured times."""
    x = np.zeros(seconds.shape[1])
    target = np.log(measured)
    for _ in range(_FACTOR_ITERATIONS):
        parts = seconds * np.exp(x)
        total = parts.sum(axis=1)
        error = np.log(total) - target
        shares = parts / total[:, None]
        weighted = shares * ((1 + (error / scale) ** 2) ** -0.5)[:, None]
        curvature = weighted.T @ shares + pull * np.eye(len(x))
        step = np.linalg.solve(curvature, -(weighted.T @ error + pull * x))
        step = np.clip(step, -_LARGEST_STEP, _LARGEST_STEP)
        x = x + step
        if np.abs(step).max() < _FACTOR_TOLERANCE:
            break
    return np.exp(x)


@dataclass(frozen=True, eq=False)
class Learned:
    """Factors by class (all columns of the times they were fitted on), and the trees of whole steps."""

    factors: Floats
    watched: NDArray[np.int64]
    forest: Forest

    def by_class(self, times: ClassTimes) -> Floats:
        """Seconds by class with factors alone, none below the roofline."""
        return np.asarray(np.maximum(times.seconds * self.factors, times.least))

    def features(self, times: ClassTimes) -> Floats:
        """What the trees look at, a row per step."""
        parts = self.by_class(times)
        return np.stack(
            [
                step_features(row[self.watched], float(row.sum()), launches, float(least.sum()))
                for row, launches, least in zip(parts, times.launches, times.least, strict=True)
            ]
        )

    def predict(self, times: ClassTimes, with_trees: bool = True) -> Floats:
        """Seconds of each step: the device's, or the host's where it is slower."""
        device = self.by_class(times).sum(axis=1)
        if with_trees:
            device = device * np.exp(np.clip(self.forest.predict(self.features(times)), -BOUND, BOUND))
        return np.asarray(np.maximum(np.maximum(device, times.least.sum(axis=1)), times.host_seconds))


def learn(times: ClassTimes) -> Learned:
    """Fit on steps whose device is busy."""
    import lightgbm

    busy = times.where(times.measured > _BUSY * times.host_seconds)
    factors = fit_factors(busy.seconds, busy.measured)
    parts = busy.seconds * factors
    shares = (parts / parts.sum(axis=1, keepdims=True)).mean(axis=0)
    bare = Learned(factors, np.flatnonzero(shares > _SEEN_SHARE), _EMPTY)
    left = np.log(busy.measured / bare.by_class(busy).sum(axis=1))
    data = lightgbm.Dataset(bare.features(busy), left)
    forest = from_lightgbm(lightgbm.train(_SETTINGS, data, _ROUNDS).dump_model())
    return Learned(factors, bare.watched, forest)


def steps(data: Path) -> list[TimmStep]:
    """All training steps, and a few forward passes of every family on both GPUs."""
    return [*timm_benchmark.training(data), *_sampled(timm_benchmark.inference(data))]


def _sampled(passes: list[TimmStep]) -> Iterator[TimmStep]:
    ordered = sorted(
        {(step.wanted, step.family) for step in passes},
        key=lambda item: name_hash(item[0].model + str(item[0].image_size)),
    )
    taken: dict[str, int] = {}
    kept = set()
    for wanted, family in ordered:
        taken[family] = taken.get(family, 0) + 1
        if taken[family] <= _PER_FAMILY:
            kept.add(wanted)
    return (step for step in passes if step.wanted in kept)


def folds(times: ClassTimes) -> Iterator[tuple[Flags, Flags]]:
    """What is fitted and what is predicted, one family left out at a time: steps on the fitted GPU only."""
    here = times.device_ids == FITTED
    for family in sorted(set(times.families[here].tolist())):
        yield here & (times.families != family), here & (times.families == family)


def family_unseen(times: ClassTimes, with_trees: bool = True) -> Floats:
    """Predictions of each step on the fitted GPU by a fit that saw no step of its family; else NaN."""
    predicted = np.full(len(times.steps), np.nan)
    for fitted, left_out in folds(times):
        predicted[left_out] = learn(times.where(fitted)).predict(times.where(left_out), with_trees)
    return predicted


def joules_per_flop() -> float:
    """The energy of a FLOP on boards for graphics, from the share of peak that the measured one sustains.

    share = 1 / sqrt(1 + (energy / headroom)²), with the products of an L40S.
    """
    share = matrix.calibration().units["tensor"].shares[_POWER_LIMITED]
    return headroom(device(_POWER_LIMITED), "tensor") * math.sqrt(1 / share**2 - 1)


def priced(data: Path, graphs: Path) -> ClassTimes:
    """All steps, priced by class of kernel."""
    return class_times(steps(data), graphs, (FITTED,), joules_per_flop())


def without_timm() -> Mapping[str, Any]:
    """The entries without timm, the one source of steps by class: every kernel as it was measured alone."""
    return {"factors": {}, "products": 1.0, "classes": [], "devices": [], "trees": None}


def calibrate(data: Path, graphs: Path) -> Mapping[str, Any]:
    """Fit, and keep the trees; the content of the calibration file."""
    times = priced(data, graphs)
    here = times.device_ids == FITTED
    fitted = learn(times.where(here))
    np.savez_compressed(files.folder() / TREES, **fitted.forest.arrays(""))  # type: ignore[arg-type]
    predicted = family_unseen(times)
    elsewhere = times.where(times.device_ids == JUDGED)
    products = [
        factor
        for name, factor in zip(times.classes, fitted.factors, strict=True)
        if name.startswith(("linear", "matmul"))
    ]
    return {
        "devices": [FITTED],
        "data": [{"source": "timm", "steps": {FITTED: int(here.sum())}}],
        "factors": dict(zip(times.classes, fitted.factors.tolist(), strict=True)),
        "products": float(np.exp(np.mean(np.log(products)))),
        "joules_per_flop": joules_per_flop(),
        "classes": [times.classes[index] for index in fitted.watched],
        "trees": TREES,
        "residuals": {
            "seen": files.spread(times.measured[here], predicted[here]),
            "unseen": files.spread(elsewhere.measured, fitted.predict(elsewhere)),
        },
    }
