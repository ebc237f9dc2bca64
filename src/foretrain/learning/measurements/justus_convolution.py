"""Convolution layers in TensorFlow 1, FP32: forward only, or a training step (`optimizer` from 1).

Which V100 and P100 were used is not said; they are taken for the SXM2 16 GB and the PCIe 16 GB boards.
Reference: D. Justus, J. Brennan, S. Bonner, A. S. McGough, "Predicting the computational cost of deep
learning models", IEEE Big Data 2018.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from foretrain.learning.measurements._base import Measurements, measurements, rows
from foretrain.learning.measurements.convolutions import Convolution
from foretrain.workloads.ops import Direction

FILE = Path("justus/conv_fp32.csv.gz")
DEVICES: Mapping[str, str] = {
    "1080ti": "gtx1080ti",
    "K40": "k40",
    "M60": "m60",
    "P100": "p100-pcie",
    "V100": "v100-sxm2-16gb",
    "k80": "k80",
}


def read(data: Path) -> Measurements:
    """The layers run forward only."""
    found = [row for row in rows(data / FILE) if row["optimizer"] == "0"]
    layers = [_layer(row) for row in found]
    return measurements(
        "justus",
        [layer.work(Direction.FORWARD) for layer in layers],
        [DEVICES[row["device"]] for row in found],
        [float(row["timeUsed_median"]) * 1e-3 for row in found],
        ["forward"] * len(found),
    )


def _layer(row: dict[str, str]) -> Convolution:
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
