"""Fused (flash) attention: one pass over blocks of scores that never reach memory.

    t = start + | computing , moving |
    computing = passes · 2 rows · (products · head + exp) · depth / (peak per SM · efficiency)

A block holds 128 queries and iterates over the keys: all of them or, with a causal mask, half on average and
the whole block on the diagonal. Queries of heads that share keys are packed into blocks. `depth` is the
number of keys of the busiest SM: waves of blocks times their mean length, but at least the longest block,
which is split if it is long. `exp` is the cost of the exponential of one score in multiply-adds, which makes
narrow heads slower. The backward pass has five products for each two of the forward pass, at the efficiency
of the forward pass: there were no measurements of backward passes.

Reference: T. Dao, "FlashAttention-2: faster attention with better parallelism and work partitioning", 2023.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np

from foretrain.facts.devices import Device
from foretrain.facts.sheets import data_root
from foretrain.prediction.operators import streaming
from foretrain.prediction.operators._base import Confidence, Knowledge, OperatorModel
from foretrain.prediction.operators.listing import Floats, WorkTable
from foretrain.prediction.operators.pricing import peaks, roofline_seconds
from foretrain.prediction.operators.products import norm
from foretrain.workloads.ops import Direction, Kind

FILE = "attention.json"
ROWS = 128
"""Queries per block."""


@dataclass(frozen=True)
class AttentionConstants:
    """The fitted constants; `efficiency` is a share of peak."""

    start_cycles: float
    efficiency: float
    exponential: float
    k_start: float
    least_split: float


def attention_seconds(
    works: WorkTable, device: Device, known: AttentionConstants, departure: float
) -> Floats:
    """Seconds of fused attention on a device with `departure` times the common efficiency."""
    sms, clock = device.sheet.number("sm_count"), device.sheet.number("boost_clock_hertz")
    queries, keys = works.dim("queries"), works.dim("keys")
    blocks = works.dim("batch") * np.maximum(works.dim("heads") * queries / ROWS, works.dim("kv_heads"))
    mean_keys = np.where(works.dim("causal", 0) > 0, np.minimum(keys, (keys + ROWS) / 2), keys)
    waves = blocks / sms
    depth = np.maximum(
        waves * (mean_keys + known.k_start), np.minimum(keys, known.least_split) + known.k_start
    )
    backward = np.array([work.direction is not Direction.FORWARD for work in works.works])
    passes = np.where(backward, 2.5, 1.0)
    width = works.dim("head") + works.dim("value_head") + known.exponential
    rate = peaks(works, device) / sms * departure * known.efficiency
    computing = passes * 2 * ROWS * width * depth / rate
    moving = works.bytes / (device.memory_bytes_per_second * streaming.calibration().share(device))
    return known.start_cycles / clock + norm(computing, moving)


@dataclass(frozen=True)
class Calibration:
    """The calibration in `data/calibrations/attention.json`.

    `departures`: efficiency of each measured device over the common one.
    """

    constants: AttentionConstants
    departures: Mapping[str, float]
    residuals: Mapping[str, tuple[float, float]]


@cache
def calibration() -> Calibration:
    """The shipped calibration."""
    raw = json.loads((data_root() / "calibrations" / FILE).read_text(encoding="utf-8"))
    return Calibration(
        AttentionConstants(**raw["constants"]),
        raw["departures"],
        {split: (each["p10"], each["p90"]) for split, each in raw["residuals"].items()},
    )


class AttentionModel(OperatorModel):
    """Prices fused attention, forward and backward."""

    name: ClassVar[str] = "attention"
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.ATTENTION})

    def seconds(self, works: WorkTable, device: Device) -> Floats:
        """Device seconds of each work."""
        known = calibration()
        departure = known.departures.get(device.id, 1.0)
        times = attention_seconds(works, device, known.constants, departure)
        return np.maximum(times, roofline_seconds(works, device))

    def confidence(self, kind: Kind, device: Device) -> Confidence:
        """Residuals on measured or other devices."""
        del kind
        is_seen = device.id in calibration().departures
        p10, p90 = calibration().residuals["seen" if is_seen else "unseen"]
        knowledge = Knowledge.CALIBRATED if is_seen else Knowledge.EXTRAPOLATED
        return Confidence(knowledge, p10, p90, f"calibrations/{FILE}")
