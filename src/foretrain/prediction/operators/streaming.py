"""Operators bound by memory: elementwise, normalisation, softmax, reductions, copies, look-ups, updates.

    t = launches · start + |moving, turning|
    moving = traffic / (bandwidth · delivered share · efficiency)
    turning = rows / (SMs · rows in flight on each) · cycles of a row / clock

where |a, b| is near the larger of the two.

The traffic is what the operator must move, plus what its kernels read again: a row reduced in several passes
is read again from memory as far as the rows in flight overflow the L2 cache, and an operator of several
kernels writes and reads what passes between them. Efficiencies and cycles are fitted by
`calibration.kernels`; the delivered share is that of `bandwidth`. What carries over to a GPU never
seen is the share of its generation and the ratio of rows in flight to cache.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np

from foretrain.facts.devices import Device, devices
from foretrain.facts.sheets import data_root, read_toml
from foretrain.prediction.operators._base import Confidence, Knowledge, OperatorModel
from foretrain.prediction.operators.bandwidth import DeviceShare, nearest_share, published
from foretrain.prediction.operators.listing import Flags, Floats, WorkTable
from foretrain.prediction.operators.pricing import roofline_seconds
from foretrain.workloads.ops import Direction, Kind

_BACKWARD = (Direction.BACKWARD, Direction.INPUT_GRADIENT, Direction.WEIGHT_GRADIENT)
_WARP_ROW = 1024
"""The longest row one warp keeps in registers in PyTorch's softmax (PersistentSoftmax.cuh)."""
_WARP_THREADS = 32
_BLOCK_THREADS = 1024
_NORM_THREADS = 128
_LINE_BYTES = 128

WAYS = (
    "elementwise",
    "short softmax",
    "odd short softmax",
    "long softmax",
    "odd long softmax",
    "norm",
    "odd norm",
)
"""Ways of streaming that differ in efficiency; odd rows do not end on a cache line."""
GROUPS = ("elementwise", "softmax", "softmax", "softmax", "softmax", "norm", "norm")
"""Which ways share a device's own correction."""
FILE = "streaming.json"
_LIKE_ELEMENTWISE = frozenset({Kind.COPY, Kind.DROPOUT, Kind.OPTIMIZER})
_SHORT, _LONG, _NORM = WAYS.index("short softmax"), WAYS.index("long softmax"), WAYS.index("norm")


@dataclass(frozen=True, eq=False)
class Streams:
    """What decides the time of each work: columns, one row per work.

    `reread_bytes` are read again as far as `crowding`, the rows in flight over the L2 cache, makes them miss.
    `turns`: rows over the blocks a multiprocessor holds at once; `chunks`: passes of a block over its row.
    """

    launches: Floats
    compulsory_bytes: Floats
    reread_bytes: Floats
    crowding: Floats
    turns: Floats
    chunks: Floats
    way: Floats

    def __len__(self) -> int:
        return len(self.launches)


@dataclass(frozen=True)
class StreamConstants:
    """The fitted constants; tuples have one entry per way of streaming.

    `start_cycles`: a kernel's start and drain. `row_cycles`, `chunk_cycles`: what a block spends on a row,
    and on each pass of its threads over it. `crowding_midpoint`, `crowding_sharpness`: rows in flight over L2
    at which half of a further pass misses it, and how abruptly. `overlap`: how well moving and turning hide
    each other (1 not at all, infinite: only the longer counts).
    """

    start_cycles: float
    efficiency: tuple[float, ...]
    row_cycles: tuple[float, ...]
    chunk_cycles: tuple[float, ...]
    crowding_midpoint: float
    crowding_sharpness: float
    overlap: float

    def corrected(self, correction: Mapping[str, tuple[float, float]]) -> StreamConstants:
        """These constants with a device's own (moving, turning) time factors, by group of ways."""
        factors = [correction.get(group, (1.0, 1.0)) for group in GROUPS]
        return replace(
            self,
            efficiency=tuple(e / f[0] for e, f in zip(self.efficiency, factors, strict=True)),
            row_cycles=tuple(c * f[1] for c, f in zip(self.row_cycles, factors, strict=True)),
            chunk_cycles=tuple(c * f[1] for c, f in zip(self.chunk_cycles, factors, strict=True)),
        )


def _way(works: WorkTable) -> Floats:
    length = works.dim("length")
    softmax, norm = works.where(frozenset({Kind.SOFTMAX})), works.where(frozenset({Kind.NORMALISATION}))
    odd = ((length * works.item_bytes) % _LINE_BYTES != 0) & (works.dim("over_batch", 0) == 0)
    way = np.zeros(len(works))
    way[softmax] = (np.where(length <= _WARP_ROW, _SHORT, _LONG) + odd)[softmax]
    way[norm] = (_NORM + odd)[norm]
    return way


@cache
def _occupancy() -> Mapping[str, int]:
    table: Mapping[str, int] = read_toml(data_root() / "calibrations" / "occupancy.toml")["threads_per_sm"]
    return table


def _threads_per_sm(device: Device) -> float:
    capability = device.sheet.text("compute_capability") if device.sheet.has("compute_capability") else ""
    return float(_occupancy().get(capability, _occupancy()["other"]))


def _threads(works: WorkTable, way: Floats) -> Floats:
    """Threads that share one row."""
    length = works.dim("length")
    of_softmax = np.where(
        length <= _WARP_ROW, _WARP_THREADS, np.clip(length / 4, _WARP_THREADS, _BLOCK_THREADS)
    )
    return np.where(way >= _NORM, _NORM_THREADS, of_softmax)


def _crowding(works: WorkTable, device: Device, way: Floats) -> Floats:
    """Bytes of the rows in flight over the L2 cache; of the whole tensor, where a row spans the batch."""
    row_bytes = works.dim("length") * works.item_bytes
    threads = _threads(works, way)
    in_flight = device.sheet.number("sm_count") * _threads_per_sm(device) / threads
    working_set = np.minimum(in_flight, works.dim("rows")) * row_bytes
    over_batch = works.dim("over_batch", 0) > 0
    return np.where(over_batch, works.read_bytes, working_set) / device.sheet.number("l2_bytes")


def _rereads(works: WorkTable, way: Floats) -> Floats:
    """Bytes read again if nothing stays in cache: a norm's operands once, those of a long softmax twice.

    Softmax backward sums in its second kernel, where it reads again two of its three tensors once.
    """
    of_softmax = np.where(_is_backward(works), works.read_bytes, 2 * works.read_bytes)
    is_long = (way == _LONG) | (way == _LONG + 1)
    return np.where(way >= _NORM, works.read_bytes, np.where(is_long, of_softmax, 0.0))


def _is_backward(works: WorkTable) -> Flags:
    return np.array([work.direction in _BACKWARD for work in works.works], bool)


def _between_kernels(works: WorkTable) -> Floats:
    """Bytes passed between the kernels of one operator, or read anew by a second one.

    Softmax backward first multiplies gradient and result into a third tensor, then reads it back with the
    result (PyTorch, SoftMax.cu); norms within a row read both operands again for the gradients of scale and
    shift (layer_norm_kernel.cu); a radix sort moves everything once for each byte of its keys.
    """
    backward, within_row = _is_backward(works), works.dim("over_batch", 0) == 0
    softmax_backward = works.where(frozenset({Kind.SOFTMAX})) & backward
    norm_backward = works.where(frozenset({Kind.NORMALISATION})) & backward & within_row
    again = np.where(softmax_backward, works.bytes, np.where(norm_backward, works.read_bytes, 0.0))
    return again + np.where(works.where(frozenset({Kind.SORT})), (works.item_bytes - 1) * works.bytes, 0.0)


def _launches(works: WorkTable) -> Floats:
    """Kernels of each work, counting those an operator is known to split into backward."""
    backward = _is_backward(works)
    norms, softmax = works.where(frozenset({Kind.NORMALISATION})), works.where(frozenset({Kind.SOFTMAX}))
    least = np.where(norms & backward, 3.0, np.where(softmax & backward, 2.0, 0.0))
    least = np.where(works.where(frozenset({Kind.SORT})), works.item_bytes, least)
    return np.maximum(works.kernels, least)


def streams(works: WorkTable, device: Device) -> Streams:
    """The columns that decide the time of works on a device."""
    way = _way(works)
    threads = _threads(works, way)
    takes_turns = (way > 0) & (works.dim("over_batch", 0) == 0)
    return Streams(
        launches=_launches(works),
        compulsory_bytes=works.bytes + _between_kernels(works),
        reread_bytes=_rereads(works, way),
        crowding=_crowding(works, device, way),
        turns=np.where(takes_turns, works.dim("rows"), 0.0) * threads / _threads_per_sm(device),
        chunks=np.ceil(works.dim("length") / (4 * threads)),
        way=way,
    )


def stream_seconds(columns: Streams, device: Device, share: float, constants: StreamConstants) -> Floats:
    """Seconds of works with these columns, at a delivered share of the device's bandwidth."""
    clock, sms = device.sheet.number("boost_clock_hertz"), device.sheet.number("sm_count")
    way = columns.way.astype(int)
    x = (columns.crowding / constants.crowding_midpoint) ** constants.crowding_sharpness
    traffic = columns.compulsory_bytes + columns.reread_bytes * x / (1 + x)
    moving = traffic / (device.memory_bytes_per_second * share * np.array(constants.efficiency)[way])
    per_row, per_chunk = np.array(constants.row_cycles)[way], np.array(constants.chunk_cycles)[way]
    turning = columns.turns * (per_row + per_chunk * columns.chunks) / (sms * clock)
    p = constants.overlap
    both: Floats = (moving**p + turning**p) ** (1 / p)
    return columns.launches * constants.start_cycles / clock + both


@dataclass(frozen=True)
class Calibration:
    """What was learned, as read from `data/calibrations/streaming.json`."""

    constants: StreamConstants
    shares: tuple[DeviceShare, ...]
    corrections: Mapping[str, Mapping[str, tuple[float, float]]]
    residuals: Mapping[str, Mapping[str, tuple[float, float]]]

    def share(self, device: Device) -> float:
        """The delivered share of a device: fitted here, else published, else that of its like."""
        fitted = [row for row in self.shares if row.device_id == device.id]
        return nearest_share(device, fitted or (*published(), *self.shares))

    def constants_of(self, device: Device) -> StreamConstants:
        """The constants, corrected by what was measured on this very device."""
        return self.constants.corrected(self.corrections.get(device.id, {}))

    def without(self, device: Device) -> Calibration:
        """The same, had no device of this one's family been measured; what was published of it stays."""
        return replace(
            self,
            shares=tuple(row for row in self.shares if devices()[row.device_id].family != device.family),
            corrections={
                name: own for name, own in self.corrections.items() if devices()[name].family != device.family
            },
        )


@cache
def calibration() -> Calibration:
    """The shipped calibration."""
    raw = json.loads((data_root() / "calibrations" / FILE).read_text(encoding="utf-8"))
    constants: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in raw["constants"].items()
    }
    return Calibration(
        constants=StreamConstants(**constants),
        shares=tuple(DeviceShare(name, share, "neusight") for name, share in raw["delivered_share"].items()),
        corrections={
            name: {group: (pair[0], pair[1]) for group, pair in by_group.items()}
            for name, by_group in raw["corrections"].items()
        },
        residuals={
            kind: {split: (found["p10"], found["p90"]) for split, found in by_split.items()}
            for kind, by_split in raw["residuals"].items()
        },
    )


class StreamingModel(OperatorModel):
    """Prices the memory-bound kinds."""

    name: ClassVar[str] = "streaming"
    kinds: ClassVar[frozenset[Kind]] = frozenset(
        {
            Kind.ELEMENTWISE, Kind.NORMALISATION, Kind.SOFTMAX, Kind.REDUCTION, Kind.COPY, Kind.GATHER,
            Kind.EMBEDDING, Kind.POOLING, Kind.RESAMPLE, Kind.DROPOUT, Kind.RANDOM, Kind.SORT, Kind.SCAN,
            Kind.LOSS, Kind.OPTIMIZER, Kind.VIEW,
        }
    )  # fmt: skip

    def __init__(self, known: Calibration | None = None) -> None:
        """By the shipped calibration, or another one."""
        self._known = known or calibration()

    def seconds(self, works: WorkTable, device: Device) -> Floats:
        """Device seconds of each work; a view launches nothing and takes none."""
        known = self._known
        times = stream_seconds(
            streams(works, device), device, known.share(device), known.constants_of(device)
        )
        return np.maximum(times, roofline_seconds(works, device))

    def confidence(self, kind: Kind, device: Device) -> Confidence:
        """Residuals of the kind, or of elementwise kernels where it runs as one; else the widest found."""
        known = self._known
        is_seen = device.id in known.corrections
        split = "seen" if is_seen else "unseen"
        alike = Kind.ELEMENTWISE if kind in _LIKE_ELEMENTWISE else kind
        if alike.value in known.residuals:
            p10, p90 = known.residuals[alike.value][split]
        else:
            spreads = [residuals[split] for residuals in known.residuals.values()]
            p10, p90 = min(low for low, _ in spreads), max(high for _, high in spreads)
        knowledge = Knowledge.CALIBRATED if is_seen else Knowledge.EXTRAPOLATED
        return Confidence(knowledge, p10, p90, f"calibrations/{FILE}")
