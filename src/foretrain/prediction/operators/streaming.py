"""Operators bound by memory: elementwise, normalisation, softmax, reductions, copies, look-ups, updates.

    t = launches · start + |moving, turning|
    moving = traffic / (bandwidth · delivered share · efficiency)
    turning = rows / (SMs · rows in flight on each) · cycles of a row / clock

where |a, b| is a p-norm, close to the larger of the two. The backward pass of a norm within rows sums over
columns in several kernels. The bytes that a multiprocessor has in flight there are few, so that fast memory
is not used up: a third term of the norm,

    summing = traffic / (SMs · clock · bytes per cycle)        (norms within rows, backward)

A norm of a few long rows has one block a row, however many multiprocessors are idle: it takes at least the
passes of a block over its row. Pooling reads every element of every window with an address of its own:

    windows · kernel elements / (SMs · clock · elements per cycle)

Images are resampled by a thread for each position, which loops over samples and channels: small images leave
most of the device idle, and each turn of the loop waits for memory like a pass of a norm's block (half of the
cycles of its two passes).

The traffic is the compulsory traffic plus what kernels read again: a row reduced in several passes is read
again from memory to the extent that the rows in flight exceed the L2 cache, and an operator of several
kernels writes and reads intermediate results. Efficiencies and cycles are fitted by `calibration.kernels`;
a GPU without measurements has its own ratio of rows in flight to cache.

    delivered share = measured copy or triad bandwidth / nominal bandwidth

Pascal and Turing boards reach about 0.75, later ones 0.8-0.93. The share depends on the memory controller and
the board, so a device without measurements has the mean of its generation, else of its vendor.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean
from typing import Any, ClassVar

import numpy as np

from foretrain.errors import MissingData
from foretrain.facts.calibrations import calibration_content, load_calibration
from foretrain.facts.devices import Device, device, devices
from foretrain.prediction.operators.pricing import (
    Confidence,
    Floats,
    OperatorModel,
    Residuals,
    WorkTable,
    once_per_device,
    roofline_seconds,
)
from foretrain.workloads.ops import Direction, Kind
from foretrain.workloads.rules.fp8 import TRANSPOSED

_BACKWARD = (Direction.BACKWARD, Direction.INPUT_GRADIENT, Direction.WEIGHT_GRADIENT)
_WARP_ROW = 1024
"""The longest row that one warp keeps in registers in PyTorch's softmax (PersistentSoftmax.cuh)."""
_WARP_THREADS = 32  # of CUDA
_BLOCK_THREADS = 1024  # the most that CUDA allows in a block
_NORM_THREADS = 128
_LINE_BYTES = 128  # a cache line; rows that end within one are `odd` below

PATTERNS = (
    "elementwise",
    "short softmax",
    "odd short softmax",
    "long softmax",
    "odd long softmax",
    "norm",
    "odd norm",
)
"""Access patterns with different efficiencies; odd rows do not end on a cache line."""
GROUPS = ("elementwise", "softmax", "softmax", "softmax", "softmax", "norm", "norm")
"""The group of each pattern; a device's corrections are by group."""
FILE, BANDWIDTHS = "streaming.json", "bandwidth.toml"
_LIKE_ELEMENTWISE = frozenset({Kind.COPY, Kind.DROPOUT, Kind.OPTIMIZER})
_SHORT, _LONG, _NORM = PATTERNS.index("short softmax"), PATTERNS.index("long softmax"), PATTERNS.index("norm")


@dataclass(frozen=True, eq=False)
class Streams:
    """The quantities that determine the time of each work: columns, one row per work.

    `reread_bytes` are read again if they miss the cache, which depends on `crowding`, the rows in flight over
    the L2 cache. `turns`: rows over the concurrent blocks of a multiprocessor; `chunks`: passes of a block
    over its row. `window_elements`: what the windows of a pooling read, each by itself. `loops`: turns of the
    loops of a thread that resamples images, one after the other.
    """

    launches: Floats
    compulsory_bytes: Floats
    reread_bytes: Floats
    crowding: Floats
    turns: Floats
    chunks: Floats
    pattern: Floats
    sums_columns: Floats
    window_elements: Floats
    loops: Floats

    def __len__(self) -> int:
        return len(self.launches)


@dataclass(frozen=True)
class StreamConstants:
    """The fitted constants; tuples have one entry per access pattern.

    `start_cycles`: start and drain of a kernel. `row_cycles`, `chunk_cycles`: cycles of a block per row, and
    per pass of its threads over the row. `crowding_midpoint`, `crowding_sharpness`: rows in flight over L2 at
    which half of a further pass misses the cache, and the steepness there. `overlap`: exponent of the norm of
    moving and turning (1: no overlap; infinite: only the longer counts). `column_bytes`: bytes per cycle that
    a multiprocessor has in flight where it sums over columns. `window_elements`: elements of windows that a
    multiprocessor addresses and reads in a cycle.
    """

    start_cycles: float
    efficiency: tuple[float, ...]
    row_cycles: tuple[float, ...]
    chunk_cycles: tuple[float, ...]
    crowding_midpoint: float
    crowding_sharpness: float
    overlap: float
    column_bytes: float = math.inf
    window_elements: float = math.inf

    def corrected(self, correction: Mapping[str, tuple[float, float]]) -> StreamConstants:
        """The constants with a device's own factors of the (moving, turning) times, by group of patterns."""
        factors = [correction.get(group, (1.0, 1.0)) for group in GROUPS]
        return replace(
            self,
            efficiency=tuple(e / f[0] for e, f in zip(self.efficiency, factors, strict=True)),
            row_cycles=tuple(c * f[1] for c, f in zip(self.row_cycles, factors, strict=True)),
            chunk_cycles=tuple(c * f[1] for c, f in zip(self.chunk_cycles, factors, strict=True)),
        )


def _pattern(works: WorkTable) -> Floats:
    length = works.dim("length")
    softmax, norm = works.where(frozenset({Kind.SOFTMAX})), works.where(frozenset({Kind.NORMALISATION}))
    # The row of a batch norm is spread over the batch: it ends on no line of its own.
    odd = ((length * works.item_bytes) % _LINE_BYTES != 0) & (works.dim("over_batch", 0) == 0)
    pattern = np.zeros(len(works))
    pattern[softmax] = (np.where(length <= _WARP_ROW, _SHORT, _LONG) + odd)[softmax]
    pattern[norm] = (_NORM + odd)[norm]
    return pattern


@cache
def _occupancy() -> Mapping[str, int]:
    table: Mapping[str, int] = calibration_content("occupancy.toml")["threads_per_sm"]
    return table


def _threads_per_sm(device: Device) -> float:
    return float(_occupancy().get(device.compute_capability, _occupancy()["other"]))


def _threads(works: WorkTable, pattern: Floats) -> Floats:
    """Threads per row."""
    length = works.dim("length")
    of_softmax = np.where(
        length <= _WARP_ROW, _WARP_THREADS, np.clip(length / 4, _WARP_THREADS, _BLOCK_THREADS)
    )
    return np.where(pattern >= _NORM, _NORM_THREADS, of_softmax)


def _rereads(works: WorkTable, pattern: Floats) -> Floats:
    """Bytes read again without a cache: the operands of a norm once, those of a long softmax twice.

    Softmax backward sums in its second kernel, which reads two of its three tensors again; that of a
    logarithm sums the gradient, one of its two.
    """
    backward = np.where(works.dim("of_log", 0) > 0, works.read_bytes / 2, works.read_bytes)
    of_softmax = np.where(works.directed(*_BACKWARD), backward, 2 * works.read_bytes)
    is_long = (pattern == _LONG) | (pattern == _LONG + 1)
    return np.where(pattern >= _NORM, works.read_bytes, np.where(is_long, of_softmax, 0.0))


def _between_kernels(works: WorkTable) -> Floats:
    """Bytes exchanged between the kernels of one operator, or read again by a second kernel.

    Softmax backward first multiplies gradient and result into a third tensor, then reads it with the result;
    that of a logarithm does not (PyTorch, SoftMax.cu). Norms within a row read both operands again for the
    gradients of scale and shift (layer_norm_kernel.cu); a radix sort moves all data once per byte of
    its keys.
    """
    backward, within_row = works.directed(*_BACKWARD), works.dim("over_batch", 0) == 0
    softmax_backward = works.where(frozenset({Kind.SOFTMAX})) & backward & (works.dim("of_log", 0) == 0)
    norm_backward = works.where(frozenset({Kind.NORMALISATION})) & backward & within_row
    again = np.where(softmax_backward, works.bytes, np.where(norm_backward, works.read_bytes, 0.0))
    return again + np.where(works.where(frozenset({Kind.SORT})), (works.item_bytes - 1) * works.bytes, 0.0)


def _launches(works: WorkTable) -> Floats:
    """Kernels of each work, including those that backward operators are split into."""
    backward = works.directed(*_BACKWARD)
    norms, softmax = works.where(frozenset({Kind.NORMALISATION})), works.where(frozenset({Kind.SOFTMAX}))
    least = np.where(norms & backward, 3.0, np.where(softmax & backward, 2.0, 0.0))
    least = np.where(works.where(frozenset({Kind.SORT})), works.item_bytes, least)
    return np.maximum(works.kernels, least)


def _columns(works: WorkTable) -> Streams:
    """The columns of works, those that depend on the device for a device of one thread and one byte of cache.

    `crowding` has the bytes of a row, or of the whole tensor if a row spans the batch.
    """
    pattern = _pattern(works)
    over_batch = works.dim("over_batch", 0) > 0
    takes_turns = (pattern > 0) & ~over_batch
    return Streams(
        launches=_launches(works),
        compulsory_bytes=works.bytes + _between_kernels(works),
        reread_bytes=_rereads(works, pattern),
        crowding=np.where(over_batch, works.read_bytes, works.dim("length") * works.item_bytes),
        turns=np.where(takes_turns, works.dim("rows"), 0.0) * _threads(works, pattern),
        chunks=np.ceil(works.dim("length") / (4 * _threads(works, pattern))),
        pattern=pattern,
        sums_columns=((pattern >= _NORM) & takes_turns & works.directed(*_BACKWARD)).astype(float),
        window_elements=works.dim("windows", 0) * works.dim("kernel", 0),
        loops=works.dim("loops", 0),
    )


def streams(works: WorkTable, device: Device) -> Streams:
    """The columns that determine the time of works on a device."""
    each, per_sm = works.once(_columns), _threads_per_sm(device)
    in_flight = device.sm_count * per_sm
    rows = np.minimum(in_flight / _threads(works, each.pattern), works.dim("rows"))
    working_set = np.where(works.dim("over_batch", 0) > 0, 1.0, rows) * each.crowding
    return replace(
        each,
        crowding=working_set / device.l2_bytes,
        turns=each.turns / per_sm,
        loops=each.loops * np.maximum(1.0, works.dim("positions", 0) / in_flight),
    )


def stream_seconds(columns: Streams, device: Device, share: float, constants: StreamConstants) -> Floats:
    """Seconds of works with these columns, at a delivered share of the device's bandwidth."""
    clock, sms = device.clock_hertz, device.sm_count
    pattern = columns.pattern.astype(int)
    # A smooth step from 0 to 1, not a threshold: an answer must not depend on the last bit of a size.
    x = (columns.crowding / constants.crowding_midpoint) ** constants.crowding_sharpness
    traffic = columns.compulsory_bytes + columns.reread_bytes * x / (1 + x)
    moving = traffic / (device.memory_bytes_per_second * share * np.array(constants.efficiency)[pattern])
    per_row, per_chunk = np.array(constants.row_cycles)[pattern], np.array(constants.chunk_cycles)[pattern]
    turning = columns.turns * (per_row + per_chunk * columns.chunks) / (sms * clock)
    alone = (columns.turns > 0) & (pattern >= _NORM)
    turning = np.maximum(turning, alone * per_chunk * columns.chunks / clock)
    summing = columns.sums_columns * traffic / (sms * clock * constants.column_bytes)
    addressing = columns.window_elements / (sms * clock * constants.window_elements)
    looping = columns.loops * constants.chunk_cycles[_NORM] / 2 / clock
    # The terms overlap in one kernel, so that the longest dominates; launches come one after the other.
    p = constants.overlap
    together: Floats = (moving**p + turning**p + summing**p + addressing**p + looping**p) ** (1 / p)
    return columns.launches * constants.start_cycles / clock + together


@cache
def published_shares() -> tuple[tuple[str, float], ...]:
    """Published bandwidths as shares of nominal bandwidth, with their devices; the mean of copy and triad."""
    shares = []
    for row in calibration_content(BANDWIDTHS)["measured"]:
        known = device(row["device"])
        figures = [row[key] for key in row if key.endswith("_bytes_per_second")]
        shares.append((known.id, fmean(figures) / known.memory_bytes_per_second))
    return tuple(shares)


def nearest_share(target: Device, known: Iterable[tuple[str, float]]) -> float:
    """The share of a device: measured on it, else the mean of its family, generation, vendor or kind.

    `known` has pairs of a device's id and a share of its nominal bandwidth or peak.
    """
    shares: dict[str, list[float]] = {}
    for name, share in known:
        shares.setdefault(name, []).append(share)
    of_device = {name: fmean(each) for name, each in shares.items()}  # so that devices count equally
    if target.id in of_device:
        return of_device[target.id]
    measured = [(devices()[name], share) for name, share in of_device.items()]
    # From the most similar devices to any: the share depends on memory controller and board.
    for level in ("family", "generation", "vendor", "kind"):
        value = getattr(target, level)
        similar = [share for each, share in measured if getattr(each, level) == value]
        if similar:
            return fmean(similar)
    raise MissingData(f"no {target.kind} was measured, so the share of {target.id} cannot be estimated")


@dataclass(frozen=True)
class StreamingCalibration:
    """The calibration in `data/calibrations/streaming.json`."""

    constants: StreamConstants
    delivered_share: Mapping[str, float]
    corrections: Mapping[str, Mapping[str, tuple[float, float]]]
    residuals: Mapping[str, Residuals]

    @once_per_device
    def share(self, device: Device) -> float:
        """The delivered share of a device: fitted, else published, else that of similar devices."""
        if device.id in self.delivered_share:
            return self.delivered_share[device.id]
        return nearest_share(device, (*published_shares(), *self.delivered_share.items()))

    def constants_of(self, device: Device) -> StreamConstants:
        """The constants with the corrections of this device."""
        return self.constants.corrected(self.corrections.get(device.id, {}))

    def without(self, device: Device) -> StreamingCalibration:
        """The calibration without measurements of the device's family; published bandwidths are kept."""
        family = {name for name, each in devices().items() if each.family == device.family}
        return replace(
            self,
            delivered_share={name: own for name, own in self.delivered_share.items() if name not in family},
            corrections={name: own for name, own in self.corrections.items() if name not in family},
        )


@cache
def calibration() -> StreamingCalibration:
    """The shipped calibration."""
    return load_calibration(StreamingCalibration, FILE)


def without_transposes(works: WorkTable, device: Device) -> WorkTable:
    """Works whose casts write no transposed copies, on devices that multiply operands in any layout."""
    if not works.dim(TRANSPOSED, 0).any() or not _multiplies_any_layout(device):
        return works
    return WorkTable(
        tuple(
            replace(work, write_bytes=work.write_bytes - work.dims.get(TRANSPOSED, 0)) for work in works.works
        )
    )


@cache
def fp8_facts() -> Mapping[str, Any]:
    """What GPUs make of FP8 besides the rate of their tensor cores."""
    return calibration_content("fp8.toml")


def _multiplies_any_layout(device: Device) -> bool:
    """Whether FP8 products read operands in any layout, so that casts need not store them transposed too."""
    return bool(device.cuda_capability >= fp8_facts()["layouts"]["any_from"])


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

    def __init__(self, known: StreamingCalibration | None = None) -> None:
        """With the shipped calibration, or another one."""
        self._known = known

    def seconds(self, works: WorkTable, device: Device) -> Floats:
        """Device seconds of each work; 0 for a view."""
        known, works = self._known or calibration(), without_transposes(works, device)
        times = stream_seconds(
            streams(works, device), device, known.share(device), known.constants_of(device)
        )
        return np.maximum(times, roofline_seconds(works, device))

    def confidence(self, kind: Kind, device: Device) -> Confidence:
        """Residuals of the kind, or of elementwise kernels if it runs as one; else the widest."""
        known = self._known or calibration()
        measured = Kind.ELEMENTWISE if kind in _LIKE_ELEMENTWISE else kind
        own = known.residuals.get(measured.value)
        spreads = known.residuals.values() if own is None else (own,)
        each = [spread.confidence(device.id in known.corrections, FILE) for spread in spreads]
        return replace(each[0], p10=min(one.p10 for one in each), p90=max(one.p90 for one in each))
