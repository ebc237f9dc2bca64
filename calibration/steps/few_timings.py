"""How far measured / predicted changes from one size of a step to the next, from PROFET's batch sizes.

Everything is learned from batches of up to 64: the harness, and then the spreads, by predicting batch 64
from 16 and 32. Slope and wander come from the point of a grid whose 80 % intervals have the best interval
score (short, and few measurements far outside); the noise is that of PROFET's own repeats; all are then
scaled so that the interval covers 80 % of the predicted batches.

Reference: T. Gneiting, A. E. Raftery, "Strictly proper scoring rules, prediction, and estimation", JASA 102,
2007, equation 43.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibration.steps.generation_speed import generation_speed
from calibration.steps.keras_harness import fit_harness
from calibration.steps.profet_pricing import GPUS, PricedStep, measured, priced_steps, table
from foretrain.facts.devices import device
from foretrain.prediction.corrections.error_model import SIZES_FILE, SizeSpreads, TimedSize, correct_at_size
from foretrain.prediction.operators.pricing import Floats

FILE = SIZES_FILE

KNOWN_UP_TO = 64
_LEVEL, _NOISE = 0.3, 0.013
_SLOPES = (0.01, 0.015, 0.02, 0.03, 0.04, 0.06)
_WANDERS = (0.01, 0.02, 0.03, 0.04, 0.05, 0.07, 0.1)
_SCALES = tuple(np.geomspace(0.25, 8.0, 41).tolist())
_WANTED_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class SizePrediction:
    """A size predicted from smaller ones: its place among the steps, its quantiles over the measurement."""

    index: int
    p10: float
    p50: float
    p90: float

    @property
    def interval_score(self) -> float:
        """Width of the interval and how far the measurement lies outside, as logarithms; less is better."""
        low, high = math.log(self.p10), math.log(self.p90)
        return high - low + 2 / (1 - _WANTED_SHARE) * (max(low, 0.0) + max(-high, 0.0))

    @property
    def holds(self) -> bool:
        """Whether the interval holds the measurement."""
        return self.p10 <= 1 <= self.p90


def sequences(steps: Sequence[PricedStep]) -> list[list[int]]:
    """Places of the steps that differ in their batch only, smallest first."""
    same: dict[tuple[str, str, int], list[int]] = {}
    for index, item in enumerate(steps):
        same.setdefault((item.step.device_id, item.step.model, item.step.image_size), []).append(index)
    return [sorted(group, key=lambda index: steps[index].step.batch) for group in same.values()]


def predict_sizes(
    steps: Sequence[PricedStep],
    predicted: Floats,
    known_up_to: int,
    least: int,
    most: int,
    spreads: SizeSpreads,
) -> list[SizePrediction]:
    """Predict batches from `least` to `most` by those up to `known_up_to`, if there are two or more."""
    predictions = []
    for group in sequences(steps):
        known = [index for index in group if steps[index].step.batch <= known_up_to]
        if len(known) < 2:
            continue
        timings = [
            TimedSize(steps[index].step.batch, float(predicted[index]), steps[index].step.seconds)
            for index in known
        ]
        for index in group:
            step = steps[index].step
            if least <= step.batch <= most:
                quantiles = correct_at_size(timings, step.batch, float(predicted[index]), spreads).scale(
                    1 / step.seconds
                )
                predictions.append(SizePrediction(index, quantiles.p10, quantiles.p50, quantiles.p90))
    return predictions


def harness_seconds(steps: Sequence[PricedStep], data: Path) -> Floats:
    """All steps by a harness that saw only the small batches."""
    speed = generation_speed(data)
    columns = table(steps, {name: speed.of(device(name)) for name in GPUS})
    small = np.array([item.step.batch <= KNOWN_UP_TO for item in steps])
    harness = fit_harness(columns.where(small), measured(steps)[small], len(GPUS))
    return harness.seconds(columns)


def fit_spreads(steps: Sequence[PricedStep], predicted: Floats) -> SizeSpreads:
    """The spreads that predict batch 64 from 16 and 32 best, with an honest interval."""

    def sizes(spreads: SizeSpreads) -> list[SizePrediction]:
        return predict_sizes(steps, predicted, KNOWN_UP_TO // 2, KNOWN_UP_TO, KNOWN_UP_TO, spreads)

    def score(spreads: SizeSpreads) -> float:
        return float(np.mean([item.interval_score for item in sizes(spreads)]))

    grid = (
        SizeSpreads(_LEVEL, slope, wander, _NOISE) for slope, wander in itertools.product(_SLOPES, _WANDERS)
    )
    best = min(grid, key=score)
    scaled = [
        SizeSpreads(best.level * scale, best.slope * scale, best.wander * scale, best.noise * scale)
        for scale in _SCALES
    ]
    return next(
        (item for item in scaled if np.mean([one.holds for one in sizes(item)]) >= _WANTED_SHARE), scaled[-1]
    )


def calibrate(data: Path) -> Mapping[str, Any]:
    """The content of the calibration file."""
    steps = priced_steps(data)
    predicted = harness_seconds(steps, data)
    spreads = fit_spreads(steps, predicted)
    sizes = predict_sizes(steps, predicted, KNOWN_UP_TO // 2, KNOWN_UP_TO, KNOWN_UP_TO, spreads)
    return {
        "model": "few timings",
        "data": [{"source": "profet", "steps": int(sum(item.step.batch <= KNOWN_UP_TO for item in steps))}],
        "fitted_on": "batch 64 predicted from batches 16 and 32 of the same model, image size and GPU",
        "mean_absolute_error": float(np.mean([abs(item.p50 - 1) for item in sizes])),
        "cases": len(sizes),
        "spreads": {name: getattr(spreads, name) for name in ("level", "slope", "wander", "noise")},
    }
