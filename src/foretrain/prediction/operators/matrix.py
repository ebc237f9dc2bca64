"""Linear layers and matrix multiplications: products m x n x k, `batch` times, on a device.

A library chooses the fastest of several tile sizes a x b, so

    t = start + | min over tiles of |computing, feeding| , moving |
    computing = 2 a b (depth + fills k0) / (peak per SM · share of peak · efficiency of the tile)
    depth     = waves · k, where waves = blocks / SMs, partly rounded up; long sums of few blocks are split
    moving    = compulsory bytes / (bandwidth · share of bandwidth)
    feeding   = tile operands, each block its own, / (bytes per cycle of the cache · SMs · clock)

|.| is a p-norm: close to the largest term, slightly above it for near ties. Every term, and hence t, grows
with every dimension and falls with every figure of the device.

The achieved share of peak of a device is fitted if it was measured. Otherwise it follows from the device's
power (`PowerLimit`), adjusted by the shares of devices with the same kernels (compute capability) or of the
same generation. Benchmarks give the share of single kernels; in training, power limits tensor cores to less
(`TrainingPower`). TF32 runs the kernels of half precision at a lower rate (`tf32_reach`). FP8 times are those
of the product alone, without casting its operands; with scales for blocks they are longer by a measured
factor.

Libraries choose among kernels by heuristics that differ by compute capability. Where products were measured,
boosted trees predict the logarithm of measured over modelled time from ratios of the product to the device:
time in tiles of each size, traffic, depth, divisibility of dimensions. Layers and plain products use
different kernels and have separate trees. Devices of the same compute capability run the same kernels and
share the correction; other devices have none.

References: NVIDIA, "Matrix multiplication background user's guide" (tile and wave quantisation); S. Lee et
al., "Forecasting GPU performance for deep learning training and inference", ASPLOS 2025.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from foretrain.facts.calibrations import Forest, ForestFile, calibration_content
from foretrain.facts.devices import Device, devices
from foretrain.persisted import restore
from foretrain.prediction.operators import streaming
from foretrain.prediction.operators.pricing import (
    Confidence,
    Flags,
    Floats,
    OperatorModel,
    Residuals,
    WorkTable,
    peak_flop_per_second,
    peaks,
    roofline_seconds,
)
from foretrain.workloads.ops import Direction, Kind
from foretrain.workloads.rules.fp8 import SCALED_BLOCKS

FILE, TREES = "products.json", "products_trees.npz"
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
_YEAR = 2018  # reference year of `joules_per_flop`, which falls with every later one
_VENDOR = "nvidia"
UNITS = ("lanes", "tensor", "fp8")
"""The units that were measured; TF32 follows from `tensor`."""
_SAME_GENERATION = 0.5
"""Weight of the deviation of devices of the same generation from the power limit."""
_VOLTA = 7
"""The first compute capability after Pascal's."""
_UNIT_TYPES = {"lanes": "float32", "tensor": "float16", "tf32": "tf32", "fp8": "float8_e4m3fn"}
_REACH_SHARPNESS = 3.0
CORRECTION_BOUND = 1.5
"""Bound of the logarithm of a correction."""
_WIDEST = 32  # dimensions divisible by more than this are aligned equally well


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
    """The products of linear layers and matrix multiplications on a device."""
    return replace(works.once(_products), peak=peaks(works, device))


def _products(works: WorkTable) -> Products:
    """The products, without the peaks of a device.

    Groups split the rows, or, in the gradient of the weights, the dimension summed over.
    """
    groups, sums = works.dim("groups"), works.directed(Direction.WEIGHT_GRADIENT)
    on_lanes = np.array([unit == "lanes" for unit in units_of(works)], bool)
    without_bias = works.where(frozenset({Kind.LINEAR})) & (works.dim("bias", 0) == 0)
    return Products(
        batch=np.maximum(works.dim("batch"), groups),
        m=np.where(sums, works.dim("m"), np.ceil(works.dim("m") / groups)),
        n=works.dim("n"),
        k=np.where(sums, np.ceil(works.dim("k") / groups), works.dim("k")),
        item_bytes=works.item_bytes,
        bytes=works.bytes,
        flop=works.flop,
        peak=np.full(len(works), np.nan),
        is_plain=works.where(frozenset({Kind.MATMUL})),
        is_bare=without_bias & works.directed(Direction.FORWARD) & on_lanes,
    )


def units_of(works: WorkTable) -> list[str]:
    """The arithmetic unit of each work."""
    return [unit_of(work.dtype) for work in works.works]


def norm(*parts: Floats) -> Floats:
    """The p-norm of times that overlap."""
    stacked = np.stack(parts)
    # Relative to the longest, so that empty products (0 s) divide by no zero and tiny ones do not underflow.
    top = np.maximum(stacked.max(axis=0), 1e-30)
    summed: Floats = top * ((stacked / top) ** _OVERLAP).sum(axis=0) ** (1 / _OVERLAP)
    return summed


def product_seconds(
    work: Products, device: Device, known: ProductConstants, compute_share: float, bandwidth_share: float
) -> Floats:
    """Seconds of products at given shares of the device's peak and bandwidth."""
    sms, clock = device.sm_count, device.clock_hertz
    moving = work.bytes / (device.memory_bytes_per_second * bandwidth_share)
    feed_rate = known.cache_bytes_per_cycle * sms * clock
    tiles = (*TILES, WIDE_TILE)[: len(known.tile_efficiency)]  # rows of a matrix of tiles by products
    a, b = np.array(tiles, float).T[:, :, None]
    layer, plain = (np.array(each)[:, None] for each in (known.tile_efficiency, known.plain_efficiency))
    efficiency = np.where(work.is_plain, plain, np.where(work.is_bare, np.maximum(plain, layer), layer))
    blocks = np.ceil(work.m / a) * np.ceil(work.n / b) * work.batch
    depth = _depth(blocks / sms, work.k, known)
    computing = 2 * a * b * depth / (work.peak / sms * compute_share * efficiency)
    feeding = blocks * (a + b) * work.k * work.item_bytes / feed_rate
    times = norm(computing, feeding)
    # Libraries choose the tile by heuristics. A soft minimum keeps times continuous where the choice changes.
    best = times.min(axis=0)
    soft_minimum: Floats = best * ((times / best) ** -_CHOICE).sum(axis=0) ** (-1 / _CHOICE)
    return known.start_cycles / clock + norm(soft_minimum, moving)


def _depth(waves: Floats, k: Floats, known: ProductConstants) -> Floats:
    """Depth of the sums of the busiest SM, including the start of each tile."""
    whole = known.wave_rounding * np.ceil(waves) + (1 - known.wave_rounding) * waves
    # With fewer tiles than multiprocessors libraries split the sum over the idle ones, not without end.
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


def kernels_of(device: Device) -> str:
    """An identifier of the kernels of a device: its compute capability, or its id if that is unknown."""
    return device.compute_capability or device.id


@cache
def _static_products() -> frozenset[str]:
    table = calibration_content("occupancy.toml")["static_products"]
    return frozenset(table["capabilities"])


def has_static_products(device: Device) -> bool:
    """Whether products divide their tiles between the multiprocessors of a device before they start."""
    return kernels_of(device) in _static_products()


@cache
def _silicon_years(vendor: str, generation: str) -> dict[str, float]:
    """The first release year of each compute capability of a generation; none is of several."""
    years: dict[str, float] = {}
    for item in devices().values():
        is_kin = item.is_gpu and (item.vendor, item.generation) == (vendor, generation)
        if is_kin and item.sheet.has("release_year"):
            year = item.sheet.number("release_year")
            years[kernels_of(item)] = min(year, years.get(kernels_of(item), year))
    return years


def silicon_year(device: Device) -> float:
    """The year in which the compute capability of a device was first sold.

    A later board with the same chip (H200 after H100) needs the same energy for a FLOP.
    """
    own = device.sheet.number("release_year")
    years = _silicon_years(device.vendor, device.generation)
    return min(own, years.get(kernels_of(device), own))


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


def tf32_reach(device: Device, flop_per_cycle: float) -> float:
    """The share of half precision's efficiency that TF32 reaches: (1 + (R / R0)³)^(-1/3).

    R is the TF32 peak of one SM in FLOP a cycle, R0 = `flop_per_cycle` what kernels that read both operands
    from registers (mma.sync, which libraries use for TF32) can feed. Boards for graphics (256-512 a cycle)
    are not limited, A100 (1,024) a little, Hopper (2,048) and later ones a lot.
    """
    if not device.sheet.has("tf32_tensor_flop_per_second"):
        return 1.0
    rate = device.sheet.number("tf32_tensor_flop_per_second")
    rate /= device.sm_count * device.clock_hertz
    return float((1 + (rate / flop_per_cycle) ** _REACH_SHARPNESS) ** (-1 / _REACH_SHARPNESS))


def tree_features(work: Products, device: Device, modelled: Floats) -> Floats:
    """The features of the trees, one row per product."""
    sms, cache_bytes = device.sm_count, device.l2_bytes
    log_time = np.log(modelled)
    columns = [log_time]
    for a, b in TILES:
        blocks = np.ceil(work.m / a) * np.ceil(work.n / b) * work.batch
        columns.append(np.log(np.ceil(blocks / sms) * 2 * a * b * work.k * sms / work.peak) - log_time)
    columns.append(np.log(work.flop / work.peak) - log_time)
    columns.append(np.log(work.bytes / device.memory_bytes_per_second) - log_time)
    operands = (work.m * work.k, work.k * work.n, work.m * work.n)
    columns += [np.log(work.batch * items * work.item_bytes / cache_bytes) for items in operands]
    columns += [np.log(each) for each in (work.batch, work.m, work.n, work.k)]
    divisors = [np.gcd(each.astype(np.int64), _WIDEST).astype(float) for each in (work.m, work.n, work.k)]
    columns += [*divisors, np.minimum(np.minimum(*divisors[:2]), divisors[2])]
    return np.stack(columns, axis=1)


def correction_key(unit: str, device: Device, is_plain: bool) -> str:
    """The key of the correction of a unit and type of product on the kernels of a device."""
    return f"{unit}:{kernels_of(device)}:{'plain' if is_plain else 'layer'}"


def tree_correction(forest: Forest, work: Products, device: Device, modelled: Floats) -> Floats:
    """Measured over modelled seconds, as a forest predicts it."""
    departure = forest.predict(tree_features(work, device, modelled))
    return np.asarray(np.exp(np.clip(departure, -CORRECTION_BOUND, CORRECTION_BOUND)))


@dataclass(frozen=True)
class Kernels:
    """The constants of the libraries of one vendor, and the limit that power sets to its devices."""

    constants: ProductConstants
    power_limit: PowerLimit


@dataclass(frozen=True)
class Unit:
    """One kind of arithmetic unit: the kernels of each vendor, the measured shares of peak of devices.

    A vendor without measurements (the key is missing) takes the kernels of NVIDIA's libraries.
    """

    name: str
    vendors: Mapping[str, Kernels]
    shares: Mapping[str, float]

    def kernels(self, device: Device) -> Kernels:
        """The kernels of a device."""
        return self.vendors[device.vendor if device.vendor in self.vendors else _VENDOR]

    def share(self, device: Device) -> float:
        """The share of its peak that a device achieves: measured, else from its power and similar devices.

        A device limited to fewer watts than its data sheet says achieves as much less as the limit predicts.
        """
        # A measured share holds at the power of the data sheet; the user may have set a lower limit.
        if device.id in self.shares:
            return self.shares[device.id] * self._by_power(device, devices().get(device.id, device))
        known = [devices()[name] for name in self.shares]
        twins = [each for each in known if kernels_of(each) == kernels_of(device)]
        if twins:  # the same silicon needs the same energy for a FLOP
            limit = self.kernels(device).power_limit
            likely = [limit.of_twin(device, each, self.shares[each.id], self.name) for each in twins]
            return float(np.exp(np.mean(np.log(likely))))
        # No board of this silicon was measured: half of what its generation deviates by is taken over.
        expected = self.expected(device)
        ratios = [self.shares[e.id] / self.expected(e) for e in known if e.generation == device.generation]
        return float(expected * np.exp(_SAME_GENERATION * np.mean(np.log(ratios)))) if ratios else expected

    def measured_twin(self, device: Device) -> Device:
        """The device itself if it was measured, else the measured one with its silicon nearest in size.

        What kernels depart from the model by is asked there: trees know nothing beyond the shares of peak
        that they have seen.
        """
        if device.id in self.shares:
            return device
        known = [devices()[name] for name in sorted(self.shares)]
        twins = [each for each in known if kernels_of(each) == kernels_of(device)]
        size = device.sm_count
        return min(twins, key=lambda twin: abs(twin.sm_count - size), default=device)

    def expected(self, device: Device) -> float:
        """The share that a device sustains within its power."""
        return self.kernels(device).power_limit.share(device, self.name)

    def _by_power(self, device: Device, sold: Device) -> float:
        return 1.0 if device.tdp_watts == sold.tdp_watts else self.expected(device) / self.expected(sold)

    def without(self, device: Device) -> Unit:
        """The unit without measurements of the device's family."""
        kept = {name: s for name, s in self.shares.items() if devices()[name].family != device.family}
        return replace(self, shares=kept)


@dataclass(frozen=True)
class ProductCalibration:
    """The calibration of products in `data/calibrations`, and of memory bandwidth.

    Without `training`, times are those of single kernels in a benchmark. `corrections` has the trees by
    `correction_key`.
    """

    units: Mapping[str, Unit]
    training: TrainingPower | None
    tf32_flop_per_cycle: float
    residuals: Residuals
    corrections: Mapping[str, Forest]
    memory: streaming.StreamingCalibration

    def share(self, unit: str, device: Device) -> float:
        """The share of the peak of a unit that a device sustains."""
        if unit == "lanes":
            return self.units[unit].share(device)
        reach = 1.0
        if unit == "tf32":  # half the peak at the same power: as much power for the same share
            unit, reach = "tensor", tf32_reach(device, self.tf32_flop_per_cycle)
        # A board sold with more watts reaches as much in a benchmark, which ends before power limits it.
        sold = devices().get(device.id, device)
        return self.sustained(self.units[unit].share(sold) * reach, device, unit)

    def sustained(self, benchmark_share: float, device: Device, unit: str) -> float:
        """The share of peak that tensor cores sustain in training, of the one in a benchmark."""
        if self.training is None or unit == "lanes":
            return benchmark_share
        return self.training.sustained(benchmark_share, device, unit)

    def constants(self, unit: str, device: Device) -> ProductConstants:
        """The constants of the kernels of a unit of a device."""
        return self.units["tensor" if unit == "tf32" else unit].kernels(device).constants

    def of_single_kernels(self) -> ProductCalibration:
        """The calibration of kernels in a benchmark, which power does not limit."""
        return replace(self, training=None)

    def is_measured(self, device: Device) -> bool:
        """Whether products were measured on this device."""
        return any(device.id in unit.shares for unit in self.units.values())

    def without(self, device: Device) -> ProductCalibration:
        """The calibration without measurements of the device's family; common constants are kept."""
        return replace(
            self,
            units={name: unit.without(device) for name, unit in self.units.items()},
            corrections={
                key: forest
                for key, forest in self.corrections.items()
                if key.split(":")[1] != kernels_of(device)
            },
            memory=self.memory.without(device),
        )


@cache
def calibration() -> ProductCalibration:
    """The shipped calibration."""
    raw = calibration_content(FILE)
    return ProductCalibration(
        units={name: restore(Unit, {**unit, "name": name}) for name, unit in raw["units"].items()},
        training=restore(TrainingPower, raw["training"]),
        tf32_flop_per_cycle=raw["tf32"]["flop_per_cycle"],
        residuals=restore(Residuals, raw["residuals"]),
        corrections=ForestFile(TREES, tuple(f"{unit}:" for unit in raw["corrected"])),
        memory=streaming.calibration(),
    )


def modelled_seconds(
    work: Products, units: list[str], device: Device, known: ProductCalibration | None = None
) -> Floats:
    """Seconds of products, each on its unit, without correction for the kernels of a library."""
    known = known or calibration()
    bandwidth = known.memory.share(device)
    names = np.array(units)
    seconds = np.zeros(len(work))
    for name in sorted(set(units)):
        mine, constants = names == name, known.constants(name, device)
        share = known.share(name, device)
        seconds[mine] = product_seconds(work.at(mine), device, constants, share, bandwidth)
    return seconds


def seconds_of(
    work: Products, units: list[str], device: Device, known: ProductCalibration | None = None
) -> Floats:
    """Seconds of products, corrected if kernels of this device and unit were measured.

    A layer without bias takes the faster time of a layer and a plain product. So do all FP32 layers on
    kernels after Pascal's that were not measured: only on Pascal is a layer much slower (P100 0.60 of peak,
    its plain products 0.79; V100 0.87 and 0.72, A100 0.78 and 0.74, T4 0.39 and 0.37, NeuSight).
    """
    known = known or calibration()
    none = np.zeros(len(work), bool)
    seconds = _corrected_seconds(replace(work, is_bare=none), units, device, known)
    is_bare = work.is_bare
    layers = ~work.is_plain & (np.array(units) == "lanes")
    is_unmeasured = device.cuda_capability >= _VOLTA and layers.any()
    if is_unmeasured and correction_key("lanes", device, False) not in known.corrections:
        is_bare = is_bare | layers
    if is_bare.any():
        plain = replace(work, is_plain=work.is_plain | is_bare, is_bare=none)
        seconds = np.minimum(seconds, _corrected_seconds(plain, units, device, known))
    return seconds


def _corrected_seconds(work: Products, units: list[str], device: Device, known: ProductCalibration) -> Floats:
    seconds = modelled_seconds(work, units, device, known)
    names = np.array(units)
    for name, is_plain in itertools.product(sorted(set(units)), (False, True)):
        mine = (names == name) & (work.is_plain == is_plain)
        forest = known.corrections.get(correction_key(name, device, is_plain)) if mine.any() else None
        if forest is not None:
            twin = known.units[name].measured_twin(device)
            there, modelled = work.at(mine), seconds[mine]
            if twin is not device:
                there = on_device(there, twin, name)
                modelled = modelled_seconds(there, [name] * len(there), twin, known)
            seconds[mine] *= tree_correction(forest, there, twin, modelled)
    return seconds


def block_slowdown(device: Device) -> float:
    """How much longer an FP8 product takes with scales for blocks; 1 where that was not measured."""
    return float(streaming.fp8_facts()["block_slowdown"].get(kernels_of(device), 1.0))


class MatrixModel(OperatorModel):
    """Prices linear layers, matrix products and their gradients, which are products too.

    The model alone never predicts a larger product to be faster. With the correction for a library's choice
    of kernels it may, as libraries do: in one of ten of 5,880 steps from one size to a larger one, mostly by
    less than 5 %, in small batched products by up to 45 % (checked by
    `tests/testing/test_operator_models.py`).
    """

    name: ClassVar[str] = "products"
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.LINEAR, Kind.MATMUL})

    def __init__(self, known: ProductCalibration | None = None) -> None:
        """With the shipped calibration, or another one."""
        self._known = known

    def seconds(self, works: WorkTable, device: Device) -> Floats:
        """Device seconds of each work."""
        times = seconds_of(products(works, device), works.once(units_of), device, self._known)
        times = np.where(works.dim(SCALED_BLOCKS, 0) > 0, times * block_slowdown(device), times)
        return np.maximum(times, roofline_seconds(works, device))

    def confidence(self, kind: Kind, device: Device) -> Confidence:
        """Residuals on measured or other devices."""
        del kind
        known = self._known or calibration()
        return known.residuals.confidence(known.is_measured(device), FILE)
