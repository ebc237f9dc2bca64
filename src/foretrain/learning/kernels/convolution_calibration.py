"""Makes `calibrations/convolution.json`: the fit, and its errors on shapes and on GPUs it had not seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from foretrain.learning.kernels.calibration_files import data_used, spread
from foretrain.learning.kernels.convolution_fit import ConvolutionFit, Sample, fit, samples
from foretrain.learning.measurements import (
    aiconfigurator_start,
    deepbench_convolution,
    neusight_convolution,
)
from foretrain.learning.measurements._base import Measurements
from foretrain.prediction.operators.convolution import FILE
from foretrain.prediction.operators.listing import Floats
from foretrain.workloads.ops import Direction

FOLDS = 3

__all__ = ["FILE", "Predictions", "calibrate", "cross_validate", "fitted_on", "read"]


@dataclass(frozen=True, eq=False)
class Predictions:
    """Out-of-sample predictions of every measurement of one data set, in its order."""

    shape_unseen: Floats
    device_unseen: Floats


def read(data: Path) -> tuple[Measurements, ...]:
    """The data sets fitted to. Gradients of an input of a few channels, which no training asks for, are left
    out: they are those of first layers.
    """
    deepbench = deepbench_convolution.read(data)
    asked = np.array(
        [
            work.direction is not Direction.INPUT_GRADIENT or work.dims["in_channels"] > 3
            for work in deepbench.works
        ]
    )
    return neusight_convolution.read(data), deepbench.where(asked)


def fitted_on(found: Sequence[Measurements], start_cycles: float) -> ConvolutionFit:
    """The fit to all measurements."""
    return fit([part for one in found for part in samples(one)], start_cycles)


def cross_validate(found: Sequence[Measurements], start_cycles: float) -> tuple[Predictions, ...]:
    """Each measurement as told by a fit without its shape, and by one without its family of GPUs."""
    parts = [samples(one) for one in found]
    told = [Predictions(np.full(len(one), np.nan), np.full(len(one), np.nan)) for one in found]
    folds = [one.fold(FOLDS) for one in found]
    for number in range(FOLDS):
        kept = [
            _keep(part, fold[one.device_ids == part.device.id] != number)
            for one, fold, split in zip(found, folds, parts, strict=True)
            for part in split
        ]
        learned = fit(kept, start_cycles)
        for one, fold, split, result in zip(found, folds, parts, told, strict=True):
            for part in split:
                here = one.device_ids == part.device.id
                result.shape_unseen[here & (fold == number)] = learned.shown(part)[fold[here] == number]
    everything = [part for split in parts for part in split]
    for family in sorted({part.device.family for part in everything}):
        learned = fit([part for part in everything if part.device.family != family], start_cycles)
        for one, split, result in zip(found, parts, told, strict=True):
            for part in split:
                if part.device.family == family:
                    result.device_unseen[one.device_ids == part.device.id] = learned.shown(part)
    return tuple(told)


def _keep(part: Sample, chosen: np.ndarray[Any, Any]) -> Sample:
    return part.at(np.flatnonzero(chosen))


def calibrate(data: Path) -> Mapping[str, Any]:
    """The content of the calibration file."""
    found = read(data)
    cycles = aiconfigurator_start.start_cycles(data)
    learned = fitted_on(found, cycles)
    told = cross_validate(found, cycles)
    seconds = np.concatenate([one.seconds for one in found])
    return {
        "model": "convolution",
        "data": data_used(found),
        "assumed": ["depthwise_share: no public measurement of single depthwise kernels was found"],
        "residuals_of": "measured / predicted; seen: by shape, unseen: by family of GPUs left out",
        "residuals": {
            "seen": spread(seconds, np.concatenate([one.shape_unseen for one in told])),
            "unseen": spread(seconds, np.concatenate([one.device_unseen for one in told])),
        },
        "constants": asdict(learned.constants),
        "measured_on_tensor_cores": sorted(
            {
                str(name)
                for one in found
                for work, name in zip(one.works, one.device_ids.tolist(), strict=True)
                if work.dtype == "float16"
            }
        ),
        "share_of_peak": {row.device_id: row.share for row in learned.by_device()},
    }
