"""Makes `calibrations/streaming.json`: the fit, and its errors on shapes and on GPUs it had not seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from foretrain.facts.devices import Device
from foretrain.learning.kernels.calibration_files import data_used, spread
from foretrain.learning.kernels.harness import floors
from foretrain.learning.kernels.streaming_fit import Sample, StreamFit, fit, samples
from foretrain.learning.measurements import aiconfigurator_start, neusight_vector
from foretrain.learning.measurements._base import Measurements
from foretrain.prediction.operators.bandwidth import DeviceShare, nearest_share, published
from foretrain.prediction.operators.listing import Floats
from foretrain.prediction.operators.streaming import FILE, Calibration, calibration

FOLDS = 3
_WELL_ABOVE = 2.0
_KIND_OF_LABEL = {"softmax": "softmax", "ln": "normalisation"}

__all__ = ["FILE", "Predictions", "calibrate", "cross_validate"]


@dataclass(frozen=True, eq=False)
class Predictions:
    """Out-of-sample predictions of every measurement, in their order, as the harness would show them.

    `device_strict` does without the published bandwidth of the device left out, too.
    """

    shape_unseen: Floats
    device_unseen: Floats
    device_strict: Floats


def cross_validate(found: Measurements, start_cycles: float) -> Predictions:
    """Each measurement as told by a fit that had not seen its shape, and by one that had not seen its GPU."""
    parts = samples(found)
    by_shape, by_device, strict = (np.full(len(found), np.nan) for _ in range(3))
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
        strict[here] = _without_its_bandwidth(learned, left_out.device).shown(left_out)
    return Predictions(by_shape, by_device, strict)


def _without_its_bandwidth(learned: StreamFit, target: Device) -> StreamFit:
    """The fit with the share of a device as told by others only."""
    fitted = [DeviceShare(name, share, "fit") for name, share in learned.shares.items()]
    others = [row for row in (*published(), *fitted) if row.device_id != target.id]
    return replace(learned, shares={**learned.shares, target.id: nearest_share(target, others)})


def unmeasured(found: Measurements, start_cycles: float, target: Device) -> Calibration:
    """The calibration had no device of the target's family been measured: refitted, for the target alone."""
    parts = [part for part in samples(found) if part.device.family != target.family]
    learned = fit(parts, start_cycles, correct=False)
    shares = tuple(DeviceShare(name, share, "fit") for name, share in learned.shares.items())
    return replace(calibration(), constants=learned.constants, shares=shares, corrections={})


def _rows(part: Sample, found: Measurements, keep: np.ndarray[Any, Any]) -> Sample:
    return part.at(np.flatnonzero(keep[found.device_ids == part.device.id]))


def calibrate(data: Path) -> Mapping[str, Any]:
    """The content of the calibration file."""
    found = neusight_vector.read(data)
    cycles = aiconfigurator_start.start_cycles(data)
    learned: StreamFit = fit(samples(found), cycles)
    told = cross_validate(found, cycles)
    kinds = np.array([_KIND_OF_LABEL.get(label, "elementwise") for label in found.labels.tolist()])
    shows_kernel = found.seconds > _WELL_ABOVE * floors(found)
    residuals = {}
    for kind in sorted(set(kinds.tolist())):
        chosen = (kinds == kind) & shows_kernel
        residuals[kind] = {
            "seen": spread(found.seconds[chosen], told.shape_unseen[chosen]),
            "unseen": spread(found.seconds[chosen], told.device_unseen[chosen]),
        }
    return {
        "model": "streaming",
        "data": data_used([found]),
        "residuals_of": "measured / predicted, of times twice the harness floor or more; "
        "seen: by shape, unseen: by GPU left out",
        "residuals": residuals,
        "harness_share_before_kernel": list(learned.before),
        "constants": asdict(learned.constants),
        "delivered_share": dict(learned.shares),
        "corrections": {name: {g: list(p) for g, p in c.items()} for name, c in learned.corrections.items()},
    }
