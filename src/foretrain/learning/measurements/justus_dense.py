"""Dense layers in TensorFlow 1, FP32: forward only, or a training step with one of six optimizers.

Devices and reference as in `justus_convolution`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foretrain.learning.measurements._base import Measurements, measurements, rows
from foretrain.learning.measurements.justus_convolution import DEVICES
from foretrain.learning.measurements.product_works import product

FILE = Path("justus/dense_fp32.csv.gz")
_FORWARD_ONLY, _PLAIN_SGD = "0", "1"


@dataclass(frozen=True, slots=True)
class DenseStep:
    """A training step of one layer with plain SGD."""

    device_id: str
    batch: int
    weight_bytes: int
    seconds: float


def read(data: Path) -> Measurements:
    """The layers run forward only."""
    found = [row for row in rows(data / FILE) if row["optimizer"] == _FORWARD_ONLY]
    works = [
        product(1, int(row["batchsize"]), int(row["dim_output"]), int(row["dim_input"]), "float32", True)
        for row in found
    ]
    return measurements(
        "justus",
        works,
        [DEVICES[row["device"]] for row in found],
        [float(row["timeUsed_median"]) * 1e-3 for row in found],
        ["dense forward"] * len(found),
    )


def training(data: Path) -> list[DenseStep]:
    """The training steps with plain SGD."""
    return [
        DenseStep(
            DEVICES[row["device"]],
            int(row["batchsize"]),
            4 * int(row["dim_input"]) * int(row["dim_output"]),
            float(row["timeUsed_median"]) * 1e-3,
        )
        for row in rows(data / FILE)
        if row["optimizer"] == _PLAIN_SGD
    ]
