"""How much slower a generation is than its operator models say, from layers timed on boards of it.

The operator models were calibrated on Maxwell and later. For a generation they have not seen, Kepler, they
take the shares of its successors, which flatters it: cuDNN has no Winograd kernels for it, and its 192 lanes
a multiprocessor are hard to feed. Justus timed single layers on a K40 and a K80 along with later GPUs, in
one and the same harness:

    convolutions   median of (measured - floor) / price over convolutions well above the floor
    rest           seconds a byte of weights adds to a dense layer's SGD step, over what the bandwidth says

each as a ratio to its median over the devices the convolution model was calibrated on. Other boards of the
generation can stand in for one that is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

import numpy as np

from calibration.datasets import justus
from calibration.datasets.measurements import Measurements
from foretrain.facts.devices import Device, device, devices
from foretrain.prediction.operators import streaming
from foretrain.prediction.operators.convolution import ConvolutionModel, calibration

_FLOOR_QUANTILE = 0.005
_WELL_ABOVE = 3.0
_FEW_ROWS = 8
_LARGE_BYTES = 1e7


@dataclass(frozen=True, slots=True)
class Slowness:
    """What to multiply the operator models' times by: those of convolutions, and all others."""

    convolutions: float = 1.0
    rest: float = 1.0


@dataclass(frozen=True)
class GenerationSpeed:
    """The slowness of each device that Justus timed."""

    by_device: dict[str, Slowness]

    def of(self, target: Device, without: str = "") -> Slowness:
        """That of the timed boards of `target`'s generation, except `without`.

        None where the operator models know the generation or it was not timed.
        """
        known = {devices()[name].generation for name in calibration().share_of_peak}
        if target.generation in known:
            return Slowness()
        same = [
            slowness
            for name, slowness in self.by_device.items()
            if devices()[name].generation == target.generation and name != without
        ]
        if not same:
            return Slowness()
        return Slowness(fmean(item.convolutions for item in same), fmean(item.rest for item in same))


def generation_speed(data: Path) -> GenerationSpeed:
    """Measure it on Justus' layers."""
    convolutions = _convolutions(justus.read_convolutions(data))
    rest = _weight_bytes(justus.read_dense_training(data))
    known = [name for name in convolutions if calibration().is_measured(device(name))]
    usual_convolutions = median(convolutions[name] for name in known)
    usual_rest = median(rest[name] for name in known)
    return GenerationSpeed(
        {
            name: Slowness(convolutions[name] / usual_convolutions, rest[name] / usual_rest)
            for name in convolutions
        }
    )


def _convolutions(measurements: Measurements) -> dict[str, float]:
    slowness = {}
    for name in measurements.devices:
        here = measurements.device_ids == name
        seconds = measurements.seconds[here]
        price = ConvolutionModel().seconds(measurements.table.rows(here), device(name))
        floor = float(np.quantile(seconds, _FLOOR_QUANTILE))
        large = price > _WELL_ABOVE * floor
        slowness[name] = float(np.median((seconds - floor)[large] / price[large]))
    return slowness


def _weight_bytes(dense_steps: list[justus.DenseStep]) -> dict[str, float]:
    slowness = {}
    for name in sorted({step.device_id for step in dense_steps}):
        steps = [
            step
            for step in dense_steps
            if step.device_id == name and step.batch <= _FEW_ROWS and step.weight_bytes > _LARGE_BYTES
        ]
        sizes = np.array([step.weight_bytes for step in steps], float)
        seconds_per_byte = float(np.polyfit(sizes, [step.seconds for step in steps], 1)[0])
        target = device(name)
        bandwidth = target.memory_bytes_per_second * streaming.calibration().share(target)
        slowness[name] = seconds_per_byte * bandwidth
    return slowness
