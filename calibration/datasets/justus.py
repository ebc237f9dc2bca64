"""Justus et al.: convolution and dense layers in TensorFlow 1, FP32, on K40, K80, M60, P100, 1080 Ti, V100.

A row is a forward pass (`optimizer` 0) or a training step with one of six optimizers. The V100 and P100
variants are not specified; they are taken as SXM2 16 GB and PCIe 16 GB. Reference: D. Justus, J. Brennan,
S. Bonner, A. S. McGough, "Predicting the computational cost of deep learning models", IEEE Big Data 2018.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibration.datasets.measurements import Measurements, measurements, rows
from calibration.datasets.works import Convolution, product
from foretrain.workloads.ops import Direction

SOURCE = "justus"
CONVOLUTION_FILE = Path("justus/conv_fp32.csv.gz")
DENSE_FILE = Path("justus/dense_fp32.csv.gz")
_FORWARD_ONLY, _PLAIN_SGD = "0", "1"
_FLOOR_QUANTILE = 0.01
DEVICES: Mapping[str, str] = {
    "1080ti": "gtx1080ti",
    "K40": "k40",
    "M60": "m60",
    "P100": "p100-pcie",
    "V100": "v100-sxm2-16gb",
    "k80": "k80",
}


def read_convolutions(data: Path) -> Measurements:
    """The layers run forward only."""
    records = [row for row in rows(data / CONVOLUTION_FILE) if row["optimizer"] == _FORWARD_ONLY]
    layers = [_convolution(row) for row in records]
    return measurements(
        SOURCE,
        [layer.work(Direction.FORWARD) for layer in layers],
        [DEVICES[row["device"]] for row in records],
        [float(row["timeUsed_median"]) * 1e-3 for row in records],
        ["forward"] * len(records),
    )


def _convolution(row: dict[str, str]) -> Convolution:
    """`padding` 1 pads so that stride 1 keeps the size ("same"), 0 not at all ("valid")."""
    size, kernel, stride = int(row["matsize"]), int(row["kernelsize"]), int(row["strides"])
    padding = kernel // 2 if row["padding"] == "1" else 0
    return Convolution(
        batch=int(row["batchsize"]),
        in_channels=int(row["channels_in"]),
        out_channels=int(row["channels_out"]),
        size=(size, size),
        kernel=(kernel, kernel),
        stride=(stride, stride),
        padding=(padding, padding),
    )


@dataclass(frozen=True, slots=True)
class DenseStep:
    """A training step of one layer with plain SGD."""

    device_id: str
    batch: int
    weight_bytes: int
    seconds: float


def read_dense(data: Path) -> Measurements:
    """The layers run forward only."""
    records = [row for row in rows(data / DENSE_FILE) if row["optimizer"] == _FORWARD_ONLY]
    works = [
        product(1, int(row["batchsize"]), int(row["dim_output"]), int(row["dim_input"]), "float32", True)
        for row in records
    ]
    return measurements(
        SOURCE,
        works,
        [DEVICES[row["device"]] for row in records],
        [float(row["timeUsed_median"]) * 1e-3 for row in records],
        ["dense forward"] * len(records),
    )


def read_dense_training(data: Path) -> list[DenseStep]:
    """The training steps with plain SGD."""
    return [
        DenseStep(
            DEVICES[row["device"]],
            int(row["batchsize"]),
            4 * int(row["dim_input"]) * int(row["dim_output"]),
            float(row["timeUsed_median"]) * 1e-3,
        )
        for row in rows(data / DENSE_FILE)
        if row["optimizer"] == _PLAIN_SGD
    ]


def dense_floors(data: Path) -> dict[str, tuple[float, float]]:
    """Seconds of the shortest dense layers by device, forward only and as a training step with plain SGD."""
    seconds: dict[tuple[str, str], list[float]] = {}
    for row in rows(data / DENSE_FILE):
        key = DEVICES[row["device"]], row["optimizer"]
        seconds.setdefault(key, []).append(float(row["timeUsed_median"]) * 1e-3)
    return {
        name: (
            float(np.quantile(seconds[name, _FORWARD_ONLY], _FLOOR_QUANTILE)),
            float(np.quantile(seconds[name, _PLAIN_SGD], _FLOOR_QUANTILE)),
        )
        for name in sorted(DEVICES.values())
    }
