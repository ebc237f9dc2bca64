"""Pricing of operators: the roofline of a device, and the prices of whole graphs.

The roofline is a lower bound of the time of any operator:

    t >= max( FLOP / peak , bytes / bandwidth )

Every distinct work of a graph is priced once, by the model of its kind.

Reference: S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for
multicore architectures", CACM 52 (4), 2009.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from foretrain.errors import MissingData
from foretrain.facts.devices import Device
from foretrain.prediction.operators._base import Confidence, OperatorModel
from foretrain.prediction.operators.listing import Floats, Listing, WorkTable, bounds, concatenated
from foretrain.workloads.ops import Kind, Op

_ON_TENSOR_CORES = {
    "tf32": ("tf32_tensor_flop_per_second", "fp32_flop_per_second"),
    "float32": ("fp32_tensor_flop_per_second", "fp32_flop_per_second"),
    "float16": ("fp16_tensor_flop_per_second", "fp16_flop_per_second", "fp32_flop_per_second"),
    "bfloat16": ("bf16_tensor_flop_per_second", "bf16_flop_per_second", "fp32_flop_per_second"),
    "float8_e4m3fn": ("fp8_tensor_flop_per_second", "bf16_tensor_flop_per_second"),
    "float64": ("fp64_flop_per_second",),
}
"""The peaks of products and convolutions of a type, fastest unit first."""


def peak_flop_per_second(device: Device, dtype: str, matrix: bool) -> float:
    """The dense peak of a device for a type: on tensor cores for matrix work, else on FP32 lanes.

    Types without a unit run at the FP32 rate; FP16 outside tensor cores counts if it is faster.
    """
    names = _ON_TENSOR_CORES.get(dtype, ("fp32_flop_per_second",)) if matrix else ("fp32_flop_per_second",)
    known = [device.sheet.number(name) for name in names if device.sheet.has(name)]
    if not known:
        raise MissingData(_no_peak(device, dtype, names))
    return max(known) if matrix and dtype in ("float16", "bfloat16") else known[0]


def _no_peak(device: Device, dtype: str, names: Sequence[str]) -> str:
    """Why a device has no peak for a type, and what works."""
    if dtype.startswith("float8"):
        return f"{device.id} has no FP8; use fp16"
    return f"{device.id} has no peak for {dtype}; add {' or '.join(names)} to its device file"


def peaks(works: WorkTable, device: Device) -> Floats:
    """The peak of the unit of each work."""
    kinds, place = works.arithmetic
    return np.array([peak_flop_per_second(device, dtype, matrix) for dtype, matrix in kinds])[place]


def roofline(works: WorkTable, device: Device) -> tuple[Floats, Floats]:
    """Lower bounds of the time to compute each work, and to move its bytes."""
    return works.flop / peaks(works, device), works.bytes / device.memory_bytes_per_second


def roofline_seconds(works: WorkTable, device: Device) -> Floats:
    """Lower bound of the time of each work."""
    return np.maximum(*roofline(works, device))


@dataclass(frozen=True, eq=False)
class PricedOps:
    """Device seconds of each operator, and the accuracy of the times of each kind.

    `computing` and `moving` are the two sides of the roofline: the lower bounds from FLOP and from bytes.
    """

    listing: Listing
    seconds: Floats
    computing: Floats
    moving: Floats
    confidence: dict[Kind, Confidence]

    @property
    def ops(self) -> tuple[Op, ...]:
        """The operators."""
        return self.listing.ops


def price(ops: Sequence[Op] | Listing, device: Device, models: Sequence[OperatorModel]) -> PricedOps:
    """Price operators; views and empty tensors cost nothing, a kind without a model raises `MissingData`."""
    listing = ops if isinstance(ops, Listing) else Listing(tuple(ops))
    everything = listing.works
    seconds = np.zeros(len(everything))
    confidence: dict[Kind, Confidence] = {}
    left = set(everything.kinds)
    for model in models:
        mine = frozenset(left & model.kinds)
        if mine:
            seconds[everything.where(mine)] = model.seconds(everything.of(mine), device)
            confidence |= {kind: model.confidence(kind, device) for kind in mine}
            left -= mine
    if left:
        raise MissingData(f"no operator model prices {', '.join(sorted(left))}")
    computing, moving = roofline(everything, device)
    return PricedOps(
        listing, listing.per_op(seconds), listing.per_op(computing), listing.per_op(moving), confidence
    )


def price_all(
    listings: Sequence[Listing], device: Device, models: Sequence[OperatorModel]
) -> tuple[PricedOps, ...]:
    """Several listings priced in one call; the prices are those of separate calls."""
    whole = price(concatenated(tuple(listings)), device, models)
    if len(listings) == 1:
        return (whole,)
    return tuple(
        PricedOps(listing, whole.seconds[low:high], whole.computing[low:high], whole.moving[low:high],
                  {kind: whole.confidence[kind] for kind in listing.works.kinds})
        for listing, (low, high) in zip(listings, pairwise(bounds(listings)), strict=True)
    )  # fmt: skip
