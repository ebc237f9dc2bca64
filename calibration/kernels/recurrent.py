"""Makes `calibrations/recurrent.json`: constants by unit and generation, held-out errors by shape and GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from calibration.datasets import deepbench
from calibration.datasets.measurements import Measurements
from calibration.files import HeldOut, data_used
from calibration.least_squares import minimise
from foretrain.facts.devices import device
from foretrain.prediction.operators.matrix import unit_of
from foretrain.prediction.operators.pricing import Flags, Floats
from foretrain.prediction.operators.recurrent import FILE as FILE
from foretrain.prediction.operators.recurrent import (
    RecurrentConstants,
    RecurrentParts,
    nearest,
    parts,
    recurrent_seconds,
)

FOLDS = 3
_START = np.log(np.array([2e-5, 2e-5, 0.7]))


def lowered(measurements: Measurements) -> RecurrentParts:
    """The products of all measurements, each on its device."""
    columns = {name: np.zeros(len(measurements)) for name in RecurrentParts.__dataclass_fields__}
    for name in measurements.devices:
        here = measurements.device_ids == name
        known = parts(measurements.where(here).table, device(name))
        for column, values in columns.items():
            values[here] = getattr(known, column)
    return RecurrentParts(**columns)


def _rows(parts_of_all: RecurrentParts, chosen: Flags) -> RecurrentParts:
    return RecurrentParts(
        **{name: getattr(parts_of_all, name)[chosen] for name in parts_of_all.__dataclass_fields__}
    )


def fit(known: RecurrentParts, seconds: Floats) -> RecurrentConstants:
    """The constants that fit the measurements best."""

    def constants(x: Floats) -> RecurrentConstants:
        return RecurrentConstants(*np.exp(x).tolist())

    def residuals(x: Floats) -> Floats:
        return np.log(recurrent_seconds(known, constants(x)) / seconds)

    return constants(minimise(residuals, _START))


def fit_generations(
    measurements: Measurements, known: RecurrentParts, rows: Flags
) -> dict[str, RecurrentConstants]:
    """The constants of each generation of devices among some rows."""
    generations = np.array([device(name).generation for name in measurements.device_ids.tolist()])
    fitted = {}
    for generation in sorted(set(generations[rows].tolist())):
        chosen = rows & (generations == generation)
        fitted[generation] = fit(_rows(known, chosen), measurements.seconds[chosen])
    return fitted


def on_tensor_cores(measurements: Measurements) -> Flags:
    """Which measurements ran on tensor cores."""
    return np.array([unit_of(work.dtype) == "tensor" for work in measurements.works])


def cross_validate(measurements: Measurements) -> HeldOut:
    """Predictions of each measurement by a fit without its shape, and by one without its GPU.

    FP16 was measured on one GPU only: without it, the constants of FP32 must do.
    """
    known, tensor, fold = lowered(measurements), on_tensor_cores(measurements), measurements.fold(FOLDS)
    by_shape, by_device = np.zeros(len(measurements)), np.zeros(len(measurements))

    def predict(into: Floats, seen: Flags, rest: Flags) -> None:
        learned = fit_generations(measurements, known, seen)
        for name in sorted(set(measurements.device_ids[rest].tolist())):
            here = rest & (measurements.device_ids == name)
            into[here] = recurrent_seconds(_rows(known, here), nearest(learned, device(name)))

    for unit in (tensor, ~tensor):
        for number in range(FOLDS):
            predict(by_shape, unit & (fold != number), unit & (fold == number))
    for name in measurements.devices:
        here = measurements.device_ids == name
        predict(by_device, ~here & ~tensor, here)
    return HeldOut(by_shape, by_device)


def calibrate(data: Path) -> Mapping[str, Any]:
    """The content of the calibration file."""
    measurements = deepbench.read_recurrent(data)
    known, tensor, out = lowered(measurements), on_tensor_cores(measurements), cross_validate(measurements)
    learned = {
        "lanes": fit_generations(measurements, known, ~tensor),
        "tensor": fit_generations(measurements, known, tensor),
    }
    return {
        "model": "recurrent",
        "data": data_used([measurements]),
        "residuals_of": "measured / predicted; seen: by shape, unseen: by GPU left out",
        "residuals": out.residuals(measurements.seconds),
        "constants": {
            unit: {generation: asdict(each) for generation, each in by_generation.items()}
            for unit, by_generation in learned.items()
        },
    }
