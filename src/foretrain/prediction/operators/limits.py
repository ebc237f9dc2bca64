"""What no operator can beat: the roofline of a device.

    t >= max( FLOP / peak , bytes / bandwidth )

Reference: S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for
multicore architectures", CACM 52 (4), 2009.
"""

from __future__ import annotations

import numpy as np

from foretrain.errors import MissingData
from foretrain.facts.devices import Device
from foretrain.prediction.operators.table import Floats, WorkTable

_ON_TENSOR_CORES = {
    "tf32": ("tf32_tensor_flop_per_second", "fp32_flop_per_second"),
    "float32": ("fp32_tensor_flop_per_second", "fp32_flop_per_second"),
    "float16": ("fp16_tensor_flop_per_second", "fp16_flop_per_second", "fp32_flop_per_second"),
    "bfloat16": ("bf16_tensor_flop_per_second", "bf16_flop_per_second", "fp32_flop_per_second"),
    "float8_e4m3fn": ("fp8_tensor_flop_per_second", "bf16_tensor_flop_per_second"),
    "float64": ("fp64_flop_per_second",),
}
"""Where products and convolutions of a type run, fastest place first."""


def peak_flop_per_second(device: Device, dtype: str, matrix: bool) -> float:
    """The device's dense peak for a type: on tensor cores for matrix work, else on its FP32 lanes.

    Types a device has no unit for run at its FP32 rate; FP16 outside tensor cores counts where it is faster.
    """
    names = _ON_TENSOR_CORES.get(dtype, ("fp32_flop_per_second",)) if matrix else ("fp32_flop_per_second",)
    known = [device.sheet.number(name) for name in names if device.sheet.has(name)]
    if not known:
        raise MissingData(f"no peak for {dtype} is known of {device.id}: one of {', '.join(names)} is needed")
    return max(known) if matrix and dtype in ("float16", "bfloat16") else known[0]


def peaks(works: WorkTable, device: Device) -> Floats:
    """The peak each work could reach."""
    kinds, place = works.arithmetic
    return np.array([peak_flop_per_second(device, dtype, matrix) for dtype, matrix in kinds])[place]


def roofline(works: WorkTable, device: Device) -> tuple[Floats, Floats]:
    """The least time of computing each work on a device, and of moving its bytes."""
    return works.flop / peaks(works, device), works.bytes / device.memory_bytes_per_second


def roofline_seconds(works: WorkTable, device: Device) -> Floats:
    """The least time of each work on a device."""
    return np.maximum(*roofline(works, device))
