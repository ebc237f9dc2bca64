"""KernelBench's single convolutions in TF32, eager, on eleven GPUs: the only public TF32 kernels found.

PyTorch 2.5 runs FP32 convolutions on the tensor cores in TF32 (`cudnn.allow_tf32` is on by default) and FP32
products without it. A call is timed as a whole, so what the host needs shows in short ones: only convolutions
that take longer than `_SHORTEST_SECONDS` are read. Where one device was timed on several hosts, the median.
Problems whose constructor does not say all of a layer (separable, asymmetric depthwise) are left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from calibration.datasets.measurements import Measurements, measurements_of, rows
from calibration.datasets.works import convolution
from foretrain.workloads.ops import Direction, Work

SOURCE = "kernelbench"
_TIMES, _PROBLEMS = Path("kernelbench/times.csv.gz"), Path("kernelbench/problems.csv")
_SHORTEST_SECONDS = 100e-6
_FULL = ("depth", "height", "width")
_UNCLEAR = ("separable", "83_conv_depthwise")
_LAYERS = ("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d")


def _sides(sizes: Mapping[str, Any], name: str, default: int, axes: int) -> tuple[int, ...]:
    """A size of each axis: one number for all, a list, or `name_h` and `name_w`."""
    given = sizes.get(name, [sizes.get(f"{name}_{axis}", default) for axis in "dhw"[-axes:]])
    return tuple(given) if isinstance(given, list) else (given,) * axes


def _work(row: Mapping[str, str]) -> Work | None:
    """The convolution of a problem, None if its description is not complete."""
    sizes = json.loads(row["sizes"])
    if row["calls"] not in _LAYERS or any(word in row["problem"] for word in _UNCLEAR):
        return None
    if not {"in_channels", "batch_size"} <= sizes.keys():
        return None
    batch, channels, *extent = (int(side) for side in row["input_shapes"].split()[0].split("x"))
    axes = len(extent)
    is_depthwise = "depthwise" in row["problem"]
    kernel = (1,) * axes if "pointwise" in row["problem"] else _sides(sizes, "kernel_size", 0, axes)
    if 0 in kernel:
        return None
    return convolution(
        batch,
        channels,
        int(sizes.get("out_channels", channels)),
        tuple(extent),
        kernel,
        stride=_sides(sizes, "stride", 1, axes),
        padding=_sides(sizes, "padding", 0, axes),
        dilation=_sides(sizes, "dilation", 1, axes),
        groups=channels if is_depthwise else int(sizes.get("groups", 1)),
        transposed=row["calls"].startswith("ConvTranspose"),
        direction=Direction.FORWARD,
        dtype="tf32",
    )


def read_convolutions(data: Path) -> Measurements:
    """The convolutions of level 1, on GPUs with TF32."""
    works = {
        (row["version"], row["problem"]): _work(row) for row in rows(data / _PROBLEMS) if row["level"] == "1"
    }
    seconds: dict[tuple[str, str, str], list[float]] = {}
    for row in rows(data / _TIMES):
        if row["level"] == "1" and row["mode"] == "eager" and row["device"] != "t4":
            key = (row["version"], row["problem"], row["device"])
            seconds.setdefault(key, []).append(float(row["seconds"]))
    return measurements_of(
        SOURCE,
        [
            (work, device_id, median(times), problem)
            for (version, problem, device_id), times in sorted(seconds.items())
            if (work := works.get((version, problem))) is not None and median(times) >= _SHORTEST_SECONDS
        ],
    )
