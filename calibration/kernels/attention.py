"""Makes `calibrations/attention.json`: five constants, errors on held-out shapes and on held-out GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.datasets import aiconfigurator
from calibration.datasets.measurements import Measurements
from calibration.files import HeldOut, data_used
from calibration.least_squares import minimise
from foretrain.facts.devices import device
from foretrain.prediction.operators.attention import FILE as FILE
from foretrain.prediction.operators.attention import AttentionConstants, attention_seconds
from foretrain.prediction.operators.listing import Flags, Floats

FOLDS = 3
_WEIGHT = 1000
"""Measurements each device counts for."""
_PULL = 3.0
"""How hard devices are held together: as ten measurements off by an e-fold."""
_START = np.log(np.array([15000.0, 0.7, 60.0, 60.0, 1000.0]))


def constants(x: Floats) -> AttentionConstants:
    """Constants from the free numbers of the fit."""
    return AttentionConstants(*np.exp(x[: len(_START)]).tolist())


@dataclass(frozen=True)
class AttentionFit:
    """Constants of all devices, and the efficiency of each over that of all."""

    constants: AttentionConstants
    departures: Mapping[str, float]


def predicted_seconds(measurements: Measurements, learned: AttentionFit) -> Floats:
    """Predictions of a fit for all measurements; devices it does not know have no departure."""
    seconds = np.zeros(len(measurements))
    for name in measurements.devices:
        here = measurements.device_ids == name
        works, target = measurements.where(here).table, device(name)
        departure = learned.departures.get(name, 1.0)
        seconds[here] = attention_seconds(works, target, learned.constants, departure)
    return seconds


def fit(measurements: Measurements) -> AttentionFit:
    """The constants that fit the measurements best, each device with equal weight."""
    works = [measurements.where(measurements.device_ids == name) for name in measurements.devices]
    targets = [device(name) for name in measurements.devices]

    def residuals(x: Floats) -> Floats:
        departures = np.exp(x[len(_START) :]).tolist()
        off = [
            np.log(attention_seconds(part.table, target, constants(x), departure) / part.seconds)
            * np.sqrt(_WEIGHT / len(part))
            for part, target, departure in zip(works, targets, departures, strict=True)
        ]
        return np.concatenate([*off, _PULL * x[len(_START) :]])

    x = minimise(residuals, np.concatenate([_START, np.zeros(len(works))]), evaluations=30)
    departures = np.exp(x[len(_START) :]).tolist()
    return AttentionFit(constants(x), dict(zip(measurements.devices, departures, strict=True)))


def cross_validate(measurements: Measurements) -> HeldOut:
    """Predictions of each measurement by a fit without its shape, and by one without its GPU."""
    fold: NDArray[np.int64] = measurements.fold(FOLDS)
    by_shape, by_device = np.zeros(len(measurements)), np.zeros(len(measurements))
    for number in range(FOLDS):
        _predict_left_out(measurements, fold == number, by_shape)
    for name in measurements.devices:
        _predict_left_out(measurements, measurements.device_ids == name, by_device)
    return HeldOut(by_shape, by_device)


def _predict_left_out(measurements: Measurements, left_out: Flags, into: Floats) -> None:
    into[left_out] = predicted_seconds(measurements.where(left_out), fit(measurements.where(~left_out)))


def calibrate(data: Path) -> Mapping[str, Any]:
    """The content of the calibration file."""
    measurements = aiconfigurator.read_attention(data)
    out, learned = cross_validate(measurements), fit(measurements)
    return {
        "model": "attention",
        "data": data_used([measurements]),
        "residuals_of": "measured / predicted; seen: by shape, unseen: by GPU left out",
        "residuals": out.residuals(measurements.seconds),
        "constants": asdict(learned.constants),
        "departures": dict(learned.departures),
    }
