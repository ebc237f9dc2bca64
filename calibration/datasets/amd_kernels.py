"""AMD's own kernel tunings: matrix products (aiter) and convolutions (MIOpen's find database).

Products are the fastest of thousands of kernels of several libraries, at the shapes of inference servers: an
upper bound for training, which takes hipBLASLt's first choice. FP8 rows multiply operands that were cast
before; the scales are of rows or of blocks.

Convolutions are the fastest of the solvers that MIOpen tried, each direction by itself, on one die of an
MI250X and on an MI300X. FP32 runs on the matrix cores. INT8 rows are left out, and so are strata that repeat:
at most `CONVOLUTIONS_PER_DEVICE` rows of a device are read, evenly over the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import median

import numpy as np

from calibration.datasets.measurements import Measurements, measurements_of, rows
from calibration.datasets.works import convolution, product
from foretrain.facts.devices import device
from foretrain.prediction.operators.pricing import Flags
from foretrain.workloads.ops import Direction, Work

GEMM_FILE = Path("amd/gemm_tuned.csv")
CONVOLUTION_FILE = Path("amd/convolution_miopen.csv.gz")
AITER, MIOPEN = "aiter", "miopen"
CONVOLUTIONS_PER_DEVICE = 3000
_SHORTEST = 0.01
_TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp8": "float8_e4m3fn"}
_DIRECTIONS = {
    "forward": Direction.FORWARD,
    "backward_input": Direction.INPUT_GRADIENT,
    "backward_weight": Direction.WEIGHT_GRADIENT,
}


def _product(row: Mapping[str, str]) -> Work:
    m, n, k = int(row["m"]), int(row["n"]), int(row["k"])
    return product(1, m, n, k, _TYPES[row["precision"]], is_linear=True)


def read_products(data: Path) -> Measurements:
    """The tuned products; the label is the type, with the scaling of FP8."""
    return measurements_of(
        AITER,
        [
            (
                _product(row),
                row["device"],
                float(row["seconds"]),
                f"{row['precision']} {row['scaling']}".strip(),
            )
            for row in rows(data / GEMM_FILE)
        ],
    )


def is_capped(measured: Measurements) -> Flags:
    """Rows of the MI308X in BF16, which its firmware limits: no share of a peak to learn from."""
    return np.asarray((measured.device_ids == "mi308x") & (measured.labels == "bf16"))


def start_cycles(data: Path) -> float:
    """Cycles at boost clock of the shortest hundredth of BF16 kernels, the median over devices."""
    every = read_products(data)
    half = every.where(every.labels == "bf16")
    return median(
        float(np.quantile(half.seconds[half.device_ids == name], _SHORTEST))
        * device(name).sheet.number("boost_clock_hertz")
        for name in half.devices
    )


def _sides(text: str) -> tuple[int, ...]:
    return tuple(int(side) for side in text.split("x"))


def read_convolutions(data: Path, per_device: int = CONVOLUTIONS_PER_DEVICE) -> Measurements:
    """MIOpen's convolutions; the label is the direction."""
    by_device: dict[str, list[dict[str, str]]] = {}
    for row in rows(data / CONVOLUTION_FILE):
        if row["precision"] in _TYPES:
            by_device.setdefault(row["device"], []).append(row)
    return measurements_of(
        MIOPEN,
        [
            (
                convolution(
                    int(row["batch"]),
                    int(row["in_channels"]),
                    int(row["out_channels"]),
                    _sides(row["in_size"]),
                    _sides(row["kernel"]),
                    stride=_sides(row["stride"]),
                    padding=_sides(row["padding"]),
                    dilation=_sides(row["dilation"]),
                    groups=int(row["groups"]),
                    out_size=_sides(row["out_size"]),
                    direction=_DIRECTIONS[row["direction"]],
                    dtype=_TYPES[row["precision"]],
                    channels_last=row["layout"].endswith("C"),
                ),
                name,
                float(row["seconds"]),
                row["direction"],
            )
            for name, listed in sorted(by_device.items())
            for row in listed[:: max(1, len(listed) // per_device)]
        ],
    )
