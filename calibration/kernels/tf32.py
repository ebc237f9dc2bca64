"""Fits how far TF32 falls behind half precision (`tf32_reach`) to KernelBench's convolutions.

No public measurement of single TF32 products was found, so convolutions, which run the same instructions,
stand for them: each is predicted with the constants of the convolution model and the share of half precision,
and one number, the FLOP a cycle that TF32 kernels can feed to an SM, is chosen to fit all GPUs at once. Only
dense convolutions over one or two axes count: for others cuDNN has no tensor-core kernel. The B200 is left
out: the libraries of 2024 had no kernels for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from calibration.datasets import kernelbench_layers
from calibration.datasets.measurements import Measurements
from foretrain.facts.devices import device
from foretrain.prediction.operators import convolution, streaming
from foretrain.prediction.operators.matrix import Unit, tf32_reach
from foretrain.prediction.operators.pricing import Floats

_TRIED = np.exp(np.linspace(np.log(256.0), np.log(8192.0), 61))
NO_LIMIT = 1e9
"""FLOP a cycle of kernels that feed tensor cores as fast as those of half precision."""
_WORDS = ("standard_2D", "standard_1D", "transposed_2D__", "pointwise")
_WITHOUT_KERNELS = frozenset({"b200"})


def read(data: Path) -> Measurements:
    """The convolutions that are fitted to."""
    every = kernelbench_layers.read_convolutions(data)
    fits = [
        any(word in label for word in _WORDS) and name not in _WITHOUT_KERNELS
        for label, name in zip(every.labels.tolist(), every.device_ids.tolist(), strict=True)
    ]
    return every.where(np.array(fits, bool))


def predict(measured: Measurements, tensor: Unit, flop_per_cycle: float) -> Floats:
    """Seconds of the convolutions if TF32 kernels feed that many FLOP a cycle."""
    known = convolution.calibration()
    seconds = np.zeros(len(measured))
    for name in measured.devices:
        here, target = measured.device_ids == name, device(name)
        work = convolution.lower(measured.table.rows(here), target)
        share = tensor.share(target) * known.over_products("tensor", tensor.share)
        shares = np.full(len(work), share * tf32_reach(target, flop_per_cycle))
        bandwidth = streaming.calibration().share(target)
        times = convolution.convolution_seconds(work, target, known.constants, shares, bandwidth)
        times = np.minimum(times, convolution.on_lanes_seconds(measured.table.rows(here), target))
        seconds[here] = np.maximum(times, convolution.least_seconds(work, target))
    return seconds


def device_unseen(measured: Measurements, tensor: Unit) -> Floats:
    """Seconds of the convolutions as predicted without those of the same device, and its products."""
    seconds = np.zeros(len(measured))
    for name in measured.devices:
        here, target = measured.device_ids == name, device(name)
        reach = _fit(measured.where(~here), tensor)["flop_per_cycle"]
        seconds[here] = predict(measured.where(here), tensor.without(target), reach)
    return seconds


def calibrate(data: Path, tensor: Unit) -> Mapping[str, Any]:
    """The FLOP a cycle with the smallest mean error, and of what."""
    measured = read(data)
    used = {name: int((measured.device_ids == name).sum()) for name in measured.devices}
    return {**_fit(measured, tensor), "data": used}


def _fit(measured: Measurements, tensor: Unit) -> dict[str, float]:
    """The FLOP a cycle with the smallest mean error, a parabola through the best three of a grid."""
    off = np.array(
        [
            float(np.mean(np.abs(np.log(predict(measured, tensor, float(x)) / measured.seconds))))
            for x in _TRIED
        ]
    )
    best = int(np.clip(np.argmin(off), 1, len(_TRIED) - 2))
    left, middle, right = off[best - 1 : best + 2]
    step = float(np.log(_TRIED[1] / _TRIED[0]))
    shift = 0.5 * step * (left - right) / max(left - 2 * middle + right, 1e-12)
    return {
        "flop_per_cycle": float(_TRIED[best] * np.exp(np.clip(shift, -step, step))),
        "mean_absolute_log_error": float(middle),
    }
