"""Makes `calibrations/streaming.json`: the fit, and its errors on shapes and on GPUs it had not seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from foretrain.learning.kernels.calibration_files import data_used, spread
from foretrain.learning.kernels.streaming_fit import Sample, StreamFit, fit, samples
from foretrain.learning.measurements import aiconfigurator_start, neusight_vector
from foretrain.learning.measurements._base import Measurements
from foretrain.prediction.operators.streaming import FILE
from foretrain.prediction.operators.table import Floats

FOLDS = 3
_KIND_OF_LABEL = {"softmax": "softmax", "ln": "normalisation"}

__all__ = ["FILE", "Predictions", "calibrate", "cross_validate"]


@dataclass(frozen=True, eq=False)
class Predictions:
    """Out-of-sample predictions of every measurement, in their order, as the harness would show them."""

    shape_unseen: Floats
    device_unseen: Floats
    kernel_device_unseen: Floats


def cross_validate(found: Measurements, start_cycles: float) -> Predictions:
    """Each measurement as told by a fit that had not seen its shape, and by one that had not seen its GPU."""
    parts = samples(found)
    by_shape, by_device, kernels = (np.full(len(found), np.nan) for _ in range(3))
    fold = found.fold(FOLDS)
    for number in range(FOLDS):
        learned = fit([_rows(part, found, fold != number) for part in parts], start_cycles)
        for part in parts:
            here = found.device_ids == part.device.id
            by_shape[here & (fold == number)] = learned.shown(part)[fold[here] == number]
    for left_out in parts:
        learned = fit([part for part in parts if part is not left_out], start_cycles, correct=False)
        here = found.device_ids == left_out.device.id
        by_device[here] = learned.shown(left_out)
        kernels[here] = learned.kernel_seconds(left_out)
    return Predictions(by_shape, by_device, kernels)


def _rows(part: Sample, found: Measurements, keep: np.ndarray[Any, Any]) -> Sample:
    return part.at(np.flatnonzero(keep[found.device_ids == part.device.id]))


def calibrate(data: Path) -> Mapping[str, Any]:
    """The content of the calibration file."""
    found = neusight_vector.read(data)
    cycles = aiconfigurator_start.start_cycles(data)
    learned: StreamFit = fit(samples(found), cycles)
    told = cross_validate(found, cycles)
    kinds = np.array([_KIND_OF_LABEL.get(label, "elementwise") for label in found.labels.tolist()])
    residuals = {
        kind: {
            "seen": spread(found.seconds[kinds == kind], told.shape_unseen[kinds == kind]),
            "unseen": spread(found.seconds[kinds == kind], told.device_unseen[kinds == kind]),
        }
        for kind in sorted(set(kinds.tolist()))
    }
    return {
        "model": "streaming",
        "data": data_used([found]),
        "residuals_of": "measured / predicted; seen: by shape, unseen: by GPU left out",
        "residuals": residuals,
        "harness_share_before_kernel": list(learned.before),
        "constants": asdict(learned.constants),
        "delivered_share": dict(learned.shares),
        "corrections": {name: {g: list(p) for g, p in c.items()} for name, c in learned.corrections.items()},
    }
