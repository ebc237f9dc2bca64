"""The time of matrix products m x n x k, `batch` times, from the tiles, waves and memory of a device.

A library chooses the fastest of several tile sizes a x b, so

    t = start + | min over tiles of |computing, feeding| , moving |
    computing = 2 a b (depth + fills k0) / (peak per SM · share of peak · efficiency of the tile)
    depth     = waves · k, where waves = blocks / SMs, partly rounded up; long sums of few blocks are split
    moving    = compulsory bytes / (bandwidth · share of bandwidth)
    feeding   = tile operands, each block its own, / (bytes per cycle of the cache · SMs · clock)

|.| is a p-norm: close to the largest term, slightly above it for near ties. Every term, and hence t, grows
with every dimension and falls with every figure of the device. The achieved share of peak is limited by
power (`PowerLimit`), in TF32 also by the instructions that feed the tensor cores (`tf32_reach`).

References: NVIDIA, "Matrix multiplication background user's guide" (tile and wave quantisation); S. Lee et
al., "Forecasting GPU performance for deep learning training and inference", ASPLOS 2025.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from foretrain.facts.calibrations import calibration_content
from foretrain.facts.devices import Device, devices
from foretrain.prediction.operators.listing import Flags, Floats, WorkTable
from foretrain.prediction.operators.pricing import peak_flop_per_second, peaks
from foretrain.workloads.ops import Direction, Kind

TILES = (
    (256, 128), (128, 256), (128, 128), (128, 64), (64, 128),
    (64, 64), (128, 32), (32, 128), (32, 32), (16, 32),
)  # fmt: skip
"""Output tiles of one thread block, rows by columns."""
WIDE_TILE = (256, 256)
"""The workhorse of hipBLASLt (MT256x256x64 in the names of its kernels). Constants have an efficiency of it
after those of `TILES`, or none: NVIDIA's kernels of that width span two SMs."""
ON_TENSOR_CORES = frozenset({"float16", "bfloat16", "tf32", "float8_e4m3fn"})
_CHOICE = 16.0
"""Sharpness of the soft minimum over tiles: two equally fast ones count as 4 % faster."""
_OVERLAP = 4.0
_YEAR = 2018


@dataclass(frozen=True, eq=False)
class Products:
    """Products in columns, one row per work, on one device.

    `is_plain`: products of activations, which run as plain kernels. `is_bare`: layers without bias, which may
    run as plain products or as layers: a layer with bias is one call of cuBLASLt, which chooses other kernels
    than cuBLAS does for the product alone.
    """

    batch: Floats
    m: Floats
    n: Floats
    k: Floats
    item_bytes: Floats
    bytes: Floats
    flop: Floats
    peak: Floats
    is_plain: Flags
    is_bare: Flags

    def __len__(self) -> int:
        return len(self.m)

    def at(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Products:
        """The table of some of the rows."""
        return Products(**{name: getattr(self, name)[rows] for name in self.__dataclass_fields__})


@dataclass(frozen=True)
class ProductConstants:
    """The fitted constants of one kind of arithmetic unit.

    `tile_efficiency` and `plain_efficiency` have one entry per tile (and one of `WIDE_TILE`, where a library
    has it), for linear layers and for products of activations, which use different kernels. `k_start`: cost
    of filling and draining a tile, as depth. `wave_rounding`: share of the idle part of the last wave that is
    paid. `least_split`: the shortest part that a long sum is split into. `cache_bytes_per_cycle`: cache
    bandwidth of one SM.
    """

    start_cycles: float
    tile_efficiency: tuple[float, ...]
    plain_efficiency: tuple[float, ...]
    k_start: float
    wave_rounding: float
    least_split: float
    cache_bytes_per_cycle: float


def products(works: WorkTable, device: Device) -> Products:
    """The products of linear layers and matrix multiplications.

    Groups split the rows, or, in the gradient of the weights, the dimension summed over.
    """
    groups = works.dim("groups")
    sums = np.array([work.direction is Direction.WEIGHT_GRADIENT for work in works.works], bool)
    return Products(
        batch=np.maximum(works.dim("batch"), groups),
        m=np.where(sums, works.dim("m"), np.ceil(works.dim("m") / groups)),
        n=works.dim("n"),
        k=np.where(sums, np.ceil(works.dim("k") / groups), works.dim("k")),
        item_bytes=works.item_bytes,
        bytes=works.bytes,
        flop=works.flop,
        peak=peaks(works, device),
        is_plain=works.where(frozenset({Kind.MATMUL})),
        is_bare=_is_bare(works),
    )


def _is_bare(works: WorkTable) -> Flags:
    """Whether each work is the forward pass of an FP32 layer without bias."""
    forward = [work.direction is Direction.FORWARD and unit_of(work.dtype) == "lanes" for work in works.works]
    without_bias = works.where(frozenset({Kind.LINEAR})) & (works.dim("bias", 0) == 0)
    return np.asarray(without_bias & np.array(forward, bool))


def norm(*parts: Floats) -> Floats:
    """The p-norm of times that overlap."""
    stacked = np.stack(parts)
    top = np.maximum(stacked.max(axis=0), 1e-30)
    summed: Floats = top * ((stacked / top) ** _OVERLAP).sum(axis=0) ** (1 / _OVERLAP)
    return summed


def product_seconds(
    work: Products, device: Device, known: ProductConstants, compute_share: float, bandwidth_share: float
) -> Floats:
    """Seconds of products at given shares of the device's peak and bandwidth."""
    sms, clock = device.sheet.number("sm_count"), device.sheet.number("boost_clock_hertz")
    moving = work.bytes / (device.memory_bytes_per_second * bandwidth_share)
    feed_rate = known.cache_bytes_per_cycle * sms * clock
    candidates = []
    tiles = (*TILES, WIDE_TILE)[: len(known.tile_efficiency)]
    for (a, b), layer, plain in zip(tiles, known.tile_efficiency, known.plain_efficiency, strict=True):
        efficiency = np.where(work.is_plain, plain, np.where(work.is_bare, max(plain, layer), layer))
        rows, columns = np.ceil(work.m / a), np.ceil(work.n / b)
        blocks = rows * columns * work.batch
        depth = _depth(blocks / sms, work.k, known)
        computing = 2 * a * b * depth / (work.peak / sms * compute_share * efficiency)
        feeding = blocks * (a + b) * work.k * work.item_bytes / feed_rate
        candidates.append(norm(computing, feeding))
    times = np.stack(candidates)
    best = times.min(axis=0)
    soft_minimum: Floats = best * ((times / best) ** -_CHOICE).sum(axis=0) ** (-1 / _CHOICE)
    return known.start_cycles / clock + norm(soft_minimum, moving)


def _depth(waves: Floats, k: Floats, known: ProductConstants) -> Floats:
    """Depth of the sums of the busiest SM, including the start of each tile."""
    whole = known.wave_rounding * np.ceil(waves) + (1 - known.wave_rounding) * waves
    split = np.maximum(waves * k, np.minimum(k, known.least_split))
    deep = np.where(waves < 1, split, np.maximum(whole, 1.0) * k)
    return np.asarray(deep + np.maximum(waves, 1.0) * known.k_start)


def unit_of(dtype: str) -> str:
    """The arithmetic unit of a type: FP32 lanes, or tensor cores in half precision, TF32 or FP8."""
    if dtype == "float8_e4m3fn":
        return "fp8"
    if dtype == "tf32":
        return "tf32"
    return "tensor" if dtype in ON_TENSOR_CORES else "lanes"


_UNIT_TYPES = {"lanes": "float32", "tensor": "float16", "tf32": "tf32", "fp8": "float8_e4m3fn"}


def kernels_of(device: Device) -> str:
    """An identifier of the kernels of a device: its compute capability, or its id if that is unknown."""
    return device.sheet.text("compute_capability") if device.sheet.has("compute_capability") else device.id


@cache
def _static_products() -> frozenset[str]:
    table = calibration_content("occupancy.toml")["static_products"]
    return frozenset(table["capabilities"])


def has_static_products(device: Device) -> bool:
    """Whether products divide their tiles between the multiprocessors of a device before they start."""
    return kernels_of(device) in _static_products()


@cache
def _silicon_years() -> dict[str, float]:
    """The first release year of each compute capability."""
    years: dict[str, float] = {}
    for item in devices().values():
        if item.kind == "gpu" and item.sheet.has("release_year"):
            year = item.sheet.number("release_year")
            years[kernels_of(item)] = min(year, years.get(kernels_of(item), year))
    return years


def silicon_year(device: Device) -> float:
    """The year in which the compute capability of a device was first sold.

    A later board with the same chip (H200 after H100) needs the same energy for a FLOP.
    """
    own = device.sheet.number("release_year")
    return min(own, _silicon_years().get(kernels_of(device), own))


def on_device(work: Products, device: Device, unit: str) -> Products:
    """The same products on another device."""
    peak = peak_flop_per_second(device, _UNIT_TYPES[unit], matrix=True)
    return replace(work, peak=np.full(len(work), peak))


def headroom(device: Device, unit: str) -> float:
    """Joules available per FLOP at peak: thermal design power / peak."""
    return device.tdp_watts / peak_flop_per_second(device, _UNIT_TYPES[unit], matrix=True)


@dataclass(frozen=True)
class PowerLimit:
    """The share of its peak that a device sustains within its power limit.

        share = ceiling / sqrt(1 + (energy / headroom)²)
        energy = joules_per_flop · exp(-decline (year - 2018))

    A board with far more power per FLOP than a FLOP needs reaches the ceiling; one with less lowers its
    clock, as T4, L4 and A2 do. The energy of a FLOP falls with the year of the device's silicon.
    """

    ceiling: float
    joules_per_flop: float
    decline: float

    def share(self, device: Device, unit: str) -> float:
        """The share of a device."""
        energy = self.joules_per_flop * np.exp(-self.decline * (silicon_year(device) - _YEAR))
        return float(self.ceiling / np.sqrt(1 + (energy / headroom(device, unit)) ** 2))

    def of_twin(self, device: Device, twin: Device, share: float, unit: str) -> float:
        """The share of a device, of that of another board with its silicon.

        What the twin lacks to the ceiling says how much energy a FLOP needs there. A GeForce board, whose
        tensor cores run at half rate, has twice the power for a FLOP and comes closer to its peak.
        """
        energy = headroom(twin, unit) * np.sqrt(max(self.ceiling / share, 1.0) ** 2 - 1)
        ceiling = max(self.ceiling, share)
        return float(ceiling / np.sqrt(1 + (energy / headroom(device, unit)) ** 2))


@dataclass(frozen=True)
class TrainingPower:
    """The share of peak that training sustains, of the one that benchmarks of single kernels reach.

        share = benchmark / (1 + (benchmark · energy / headroom)⁴)^(1/4)
        energy = joules_per_flop · exp(-decline (year - 2018)),   FP8: times `eight_bit`

    A benchmark of one kernel ends before the board reaches its power limit, or leaves it idle between calls.
    Training computes for hours on real values, moves data all the while, and lowers the clock. The energy
    falls with the year of the silicon; it is fitted to whole steps of many sources.
    """

    joules_per_flop: float
    decline: float
    eight_bit: float

    def joules(self, device: Device, unit: str) -> float:
        """The energy of a FLOP of a product on a device."""
        energy = self.joules_per_flop * np.exp(-self.decline * (silicon_year(device) - _YEAR))
        return float(energy * (self.eight_bit if unit == "fp8" else 1.0))

    def sustained(self, benchmark_share: float, device: Device, unit: str) -> float:
        """The share of peak in training."""
        load = benchmark_share * self.joules(device, unit) / headroom(device, unit)
        return float(benchmark_share * (1 + load**_OVERLAP) ** (-1 / _OVERLAP))


_REACH_SHARPNESS = 3.0


def tf32_reach(device: Device, flop_per_cycle: float) -> float:
    """The share of half precision's efficiency that TF32 reaches: (1 + (R / R0)³)^(-1/3).

    R is the TF32 peak of one SM in FLOP a cycle, R0 = `flop_per_cycle` what kernels that read both operands
    from registers (mma.sync, which libraries use for TF32) can feed. Boards for graphics (256-512 a cycle)
    are not limited, A100 (1,024) a little, Hopper (2,048) and later ones a lot.
    """
    if not device.sheet.has("tf32_tensor_flop_per_second"):
        return 1.0
    rate = device.sheet.number("tf32_tensor_flop_per_second")
    rate /= device.sheet.number("sm_count") * device.sheet.number("boost_clock_hertz")
    return float((1 + (rate / flop_per_cycle) ** _REACH_SHARPNESS) ** (-1 / _REACH_SHARPNESS))
