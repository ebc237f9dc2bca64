"""NeuSight's convolution forward times: 3x3, stride 1, FP32 without TF32, PyTorch 2.1, five GPUs."""

from __future__ import annotations

from pathlib import Path

from foretrain.facts.devices import device
from foretrain.learning.measurements._base import Measurements, measurements, rows
from foretrain.learning.measurements.convolutions import Convolution
from foretrain.workloads.ops import Direction

FILE = Path("neusight/ops_conv_fp32.csv.gz")


def read(data: Path) -> Measurements:
    """All convolutions."""
    found = list(rows(data / FILE))
    ids = {name: device(name).id for name in {row["device"] for row in found}}
    return measurements(
        "neusight",
        [_layer(row).work(Direction.FORWARD) for row in found],
        [ids[row["device"]] for row in found],
        [float(row["latency_ms"]) * 1e-3 for row in found],
        ["forward"] * len(found),
    )


def _layer(row: dict[str, str]) -> Convolution:
    size, kernel, stride, padding = (
        int(row[name]) for name in ("input_size", "kernel_size", "stride", "padding")
    )
    return Convolution(
        batch=int(row["B"]),
        in_channels=int(row["in_channels"]),
        out_channels=int(row["out_channels"]),
        size=(size, size),
        kernel=(kernel, kernel),
        stride=(stride, stride),
        padding=(padding, padding),
    )
