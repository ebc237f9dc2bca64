"""Convolutions and their two gradients, lowered to matrix products as in cuDNN and MIOpen.

A library chooses the fastest of several algorithms, so

    t = min over algorithms of  launches · start + |computing, moving|
    computing = waves · 2 a b (k + k0) / (peak per SM · share of peak · efficiency of the algorithm)

for products of m x n x k in tiles of a x b. In the forward pass m is batch times output positions, n output
channels, k input channels times kernel elements; the gradients permute them. Besides tiles of several sizes,
3x3 convolutions of stride 1 may run as Winograd F(2x2) in one kernel or F(4x4) in several, with 2.25 and 4
times fewer multiplications: in FP32 they are faster than the FLOP roofline. Depthwise convolutions are bound
by memory. PyTorch adds the bias of others in a pass of its own over the result (ATen, Convolution.cpp).

References: A. Lavin, S. Gray, "Fast algorithms for convolutional neural networks", CVPR 2016; S. Chetlur et
al., "cuDNN: efficient primitives for deep learning", arXiv:1410.0759.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from statistics import fmean
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from foretrain.facts.calibrations import load_calibration
from foretrain.facts.devices import Device, devices
from foretrain.prediction.operators import matrix, streaming
from foretrain.prediction.operators.matrix import tf32_reach
from foretrain.prediction.operators.pricing import (
    Confidence,
    Flags,
    Floats,
    OperatorModel,
    Residuals,
    WorkTable,
    once_per_device,
    peak_flop_per_second,
    peaks,
    table,
)
from foretrain.prediction.operators.streaming import nearest_share
from foretrain.workloads.ops import Direction, Kind

TILES = ((128, 128), (128, 64), (64, 64), (128, 32), (32, 32), (128, 8))
"""Output tiles of one thread block, rows by columns."""
FILE = "convolution.json"
FUSED = (32, 64)
"""Patches by channels of one block of the fused Winograd kernel."""
_LANE = 8.0  # tensor cores take channels in multiples of eight
_DEPTHWISE_CHANNELS = 2
"""Channels per group up to which convolutions do not run as matrix products."""
_AXES = ("depth", "height", "width")
_ON_TENSOR_CORES = frozenset({"float16", "bfloat16", "tf32"})
_CHOICE = 8.0
"""Sharpness of the soft minimum over algorithms: two equally fast ones count as 8 % faster."""
_OVERLAP = 4.0
_INSTANT = 1e-30  # seconds; avoids 0 / 0 where both times vanish
_FULL_ITEM_BYTES = 4  # FP32; smaller elements run at the half-precision rate


@dataclass(frozen=True, eq=False)
class Lowered:
    """Convolutions as products, in columns with one row per work."""

    m: Floats
    n: Floats
    k: Floats
    groups: Floats
    flop: Floats
    bytes: Floats
    peak: Floats
    item_bytes: Floats
    direction: Floats
    on_tensor: Flags
    is_depthwise: Flags
    is_winograd: Flags
    patches_2: Floats
    patches_4: Floats
    in_channels: Floats
    out_channels: Floats
    side: Floats
    skipped: Floats
    converts: Flags
    is_pointwise: Flags
    lane_peak: float

    def __len__(self) -> int:
        return len(self.m)

    def at(self, rows: NDArray[np.int64]) -> Lowered:
        """The table of some of the works."""
        columns = {name: getattr(self, name) for name in self.__dataclass_fields__}
        selected: dict[str, Any] = {
            name: column[rows] if isinstance(column, np.ndarray) else column
            for name, column in columns.items()
        }
        return Lowered(**selected)


@dataclass(frozen=True)
class ConvolutionConstants:
    """The fitted constants.

    `tile_efficiency` has one entry per tile. `k_start`: cost of filling and draining a tile, as depth.
    `wave_rounding`: share of the idle part of the last wave that is paid. `direction_efficiency`: forward,
    input gradient, weight gradient. `least_split`: the shortest part that a long sum is split into.
    `strided_gradient`: share of the zeros between strided gradients that is multiplied (0 none, 1 all).
    `tensor_efficiency`: of tensor cores relative to FP32 lanes. `transform`: traffic of Winograd transforms
    over the compulsory traffic. `conversion`: passes over the operands to convert them to the layout of
    tensor cores and back, unless they are channels-last; `conversion_launches`: the kernels that do so.
    `direct`: rate of kernels that read channels-first operands as they are, over that of kernels which need
    them converted; 0 if the library has none. `depthwise_share`: share of the FP32 peak that
    depthwise kernels reach in half precision. `depthwise_flop_per_cycle`: what one SM does a cycle of a
    depthwise convolution in FP32, which is bound by the instructions that load and address its operands.
    """

    start_cycles: float
    tile_efficiency: tuple[float, ...]
    fused_winograd: float
    split_winograd: float
    transform: float
    k_start: float
    wave_rounding: float
    direction_efficiency: tuple[float, ...]
    least_split: float
    tensor_efficiency: float
    tensor_k_start: float
    strided_gradient: float
    conversion: float
    depthwise_share: float
    depthwise_flop_per_cycle: float
    conversion_launches: float = 0.0
    direct: float = 0.0


def _product(works: WorkTable, prefix: str) -> Floats:
    depth, height, width = (works.dim(prefix + axis) for axis in _AXES)
    return depth * height * width


def _direction(works: WorkTable) -> Floats:
    gradients = works.directed(Direction.INPUT_GRADIENT), works.directed(Direction.WEIGHT_GRADIENT)
    return np.asarray(gradients[0] + 2.0 * gradients[1], float)


def lower(works: WorkTable, device: Device) -> Lowered:
    """Convolutions as matrix products on a device."""
    lane_peak = peak_flop_per_second(device, "float32", matrix=False)
    return replace(works.once(_lower), peak=peaks(works, device), lane_peak=lane_peak)


def _lower(works: WorkTable) -> Lowered:
    """Convolutions as matrix products, without the peaks of a device."""
    batch, groups, transposed = works.dim("batch"), works.dim("groups"), works.dim("transposed", 0) > 0
    elements, strides = _product(works, "kernel_"), _product(works, "stride_")
    direction = _direction(works)
    on_tensor = np.array([work.dtype in _ON_TENSOR_CORES for work in works.works], bool)
    m, n, k = _products(works, direction, on_tensor)
    plain = (works.dim("dilation_height") == 1) & (works.dim("dilation_width") == 1) & (groups == 1)
    side = works.dim("kernel_height")
    fast = ((side == 3) | (side == 5)) & (works.dim("kernel_width") == side) & (strides == 1)
    per_group = np.maximum(works.dim("in_channels"), works.dim("out_channels")) / groups
    return Lowered(
        m=m, n=n, k=k, groups=groups, flop=works.flop, bytes=_touched_bytes(works),
        peak=np.full(len(works), np.nan), item_bytes=works.item_bytes, direction=direction,
        on_tensor=on_tensor, is_depthwise=(groups > 1) & (per_group <= _DEPTHWISE_CHANNELS),
        is_winograd=plain & fast & ~on_tensor & ~transposed & (elements == side**2), side=side,
        skipped=np.where(_to_input(direction, transposed), strides, 1.0),
        patches_2=batch * _patches(works, 2), patches_4=batch * _patches(works, 4),
        in_channels=works.dim("in_channels"), out_channels=works.dim("out_channels"),
        converts=on_tensor & (works.dim("channels_last", 0) == 0), is_pointwise=elements == 1,
        lane_peak=math.nan,
    )  # fmt: skip


def _to_input(direction: Floats, transposed: Flags) -> Flags:
    """The works that scatter positions: input gradients, and transposed convolutions forward."""
    scatters: Flags = (direction == 1) ^ (transposed & (direction < 2))
    return scatters


def _products(works: WorkTable, direction: Floats, on_tensor: Flags) -> tuple[Floats, Floats, Floats]:
    """m, n and k, with channels padded to multiples of eight on tensor cores; k follows from the FLOP."""
    batch, groups, transposed = works.dim("batch"), works.dim("groups"), works.dim("transposed", 0) > 0
    lane = np.where(on_tensor, _LANE, 1.0)
    inputs, outputs = works.dim("in_channels") / groups, works.dim("out_channels") / groups
    wide_in, wide_out = np.ceil(inputs / lane) * lane, np.ceil(outputs / lane) * lane
    in_positions, out_positions = batch * _product(works, ""), batch * _product(works, "out_")
    to_input, to_weight = _to_input(direction, transposed), direction == 2
    positions = np.where(transposed, in_positions, out_positions)
    positions = np.where(to_input, np.maximum(in_positions, out_positions), positions)
    m = np.where(to_weight, wide_out, positions)
    n = np.where(to_input ^ transposed, wide_in, wide_out)
    n = np.where(to_weight, wide_in * _product(works, "kernel_"), n)
    flop = works.flop * (wide_in * wide_out) / (inputs * outputs)
    return m, n, flop / 2 / (m * n * groups)


def _touched_bytes(works: WorkTable) -> Floats:
    """Traffic without the input positions that a kernel narrower than its stride skips."""
    read_share = np.ones(len(works))
    for axis in _AXES:
        read_share *= np.minimum(1.0, works.dim("kernel_" + axis) / works.dim("stride_" + axis))
    inputs = works.item_bytes * works.dim("batch") * works.dim("in_channels") * _product(works, "")
    reads_input = (_direction(works) != 1) & (works.dim("transposed", 0) == 0)
    return works.bytes - np.where(reads_input, (1 - read_share) * np.minimum(inputs, works.read_bytes), 0.0)


def _patches(works: WorkTable, side: int) -> Floats:
    return np.ceil(works.dim("out_height") / side) * np.ceil(works.dim("out_width") / side)


def _norm(a: Floats, b: Floats, p: float = _OVERLAP) -> Floats:
    """The p-norm of two times that overlap: close to the larger."""
    top: Floats = np.maximum(np.maximum(a, b), _INSTANT)
    over: Floats = ((a / top) ** p + (b / top) ** p) ** (1 / p)
    return top * over


Products = tuple[Floats, Floats, Floats, Floats]
"""m, n, k, and the number of products of each work."""


def _computing(
    work: Lowered, device: Device, known: ConvolutionConstants,
    products: Products, tile: tuple[Floats | int, Floats | int], efficiency: Floats | float, share: Floats
) -> Floats:  # fmt: skip
    """Seconds of products in tiles; long sums are split over idle multiprocessors.

    `tile` and `efficiency` may be columns, for a row of seconds by each of several tiles.
    """
    m, n, k, count = products
    a, b = tile
    sms = device.sm_count
    blocks = np.ceil(m / a) * np.ceil(n / b) * count
    waves = blocks / sms
    least = np.where(work.direction == 2, np.minimum(1.0, known.least_split / np.maximum(k, 1)), 1.0)
    whole = known.wave_rounding * np.ceil(waves) + (1 - known.wave_rounding) * waves
    waves = np.where(work.direction == 2, np.maximum(waves, least), np.maximum(whole, 1.0))
    fills = np.maximum(waves, 1.0)
    k_start = np.where(work.on_tensor, known.tensor_k_start, known.k_start)
    rate = work.peak / sms * share * efficiency
    rate = rate * np.where(work.on_tensor, known.tensor_efficiency, 1.0)
    seconds: Floats = 2 * a * b * (waves * k + fills * k_start) / rate
    return seconds


def convolution_seconds(
    work: Lowered, device: Device, known: ConvolutionConstants, compute_share: Floats, bandwidth_share: float
) -> Floats:
    """Seconds of convolutions at given shares of the device's peak and bandwidth."""
    start = known.start_cycles / device.clock_hertz
    bandwidth = device.memory_bytes_per_second * bandwidth_share
    moving = work.bytes / bandwidth
    # cuDNN multiplies pointwise kernels over channels-first images as they are, at no loss of rate
    converts = work.converts & (~work.is_pointwise if known.direct == 0 else True)
    converting = np.where(converts, known.conversion * moving + known.conversion_launches * start, 0.0)
    # Between strided gradients lie zeros; libraries skip a part of them, and the exponent is fitted.
    product = (work.m, work.n, work.k * work.skipped**known.strided_gradient, work.groups)
    directed = np.array(known.direction_efficiency)[work.direction.astype(int)]
    rows, columns = np.array(TILES, float).T[:, :, None]
    efficiency = np.array(known.tile_efficiency)[:, None]
    computing = _computing(work, device, known, product, (rows, columns), efficiency, compute_share)
    candidates = [start + converting + _norm(computing / directed, moving)]
    if known.direct:
        unconverted = start + _norm(computing / directed / known.direct, moving)
        candidates.append(np.where(converts, unconverted, np.inf))
    if work.is_winograd.any():
        fused = (work.patches_2, (work.side + 1) ** 2, known.fused_winograd, 1)
        split = (work.patches_4, (work.side + 3) ** 2, known.split_winograd, 4)
        candidates += [
            _winograd(work, device, known, algorithm, compute_share, bandwidth)[None]
            for algorithm in (fused, split)
        ]
    times = np.concatenate(candidates)
    # Soft, as over the tiles of products: times stay continuous where the choice of a library changes.
    fastest = times.min(axis=0)
    best = fastest * np.sum((times / fastest) ** -_CHOICE, axis=0) ** (-1 / _CHOICE)
    cycles_per_second = device.sm_count * device.clock_hertz
    in_half = work.item_bytes < _FULL_ITEM_BYTES
    rate = np.where(
        in_half, work.lane_peak * known.depthwise_share, cycles_per_second * known.depthwise_flop_per_cycle
    )
    depthwise = start + _norm(work.flop / np.minimum(rate, work.lane_peak), work.bytes / bandwidth)
    return np.where(work.is_depthwise, depthwise, best)


def _winograd(
    work: Lowered, device: Device, known: ConvolutionConstants,
    algorithm: tuple[Floats, Floats, float, int], compute_share: Floats, bandwidth: float
) -> Floats:  # fmt: skip
    """Seconds as a batch of `points` products over patches; infinite if the algorithm does not apply."""
    patches, points, efficiency, launches = algorithm
    to_weight = work.direction == 2
    m = np.where(to_weight, work.out_channels, patches)
    n = np.where(
        to_weight, work.in_channels, np.where(work.direction == 1, work.in_channels, work.out_channels)
    )
    k = np.where(to_weight, patches, np.where(work.direction == 1, work.out_channels, work.in_channels))
    if launches > 1:  # one product per point; transformed inputs and outputs are written and read back
        product = (m, n, k, points)
        computing = _computing(work, device, known, product, (64, 64), efficiency, compute_share)
        between = 2 * points * (m * k + m * n + n * k) * work.item_bytes * known.transform
    else:  # one block keeps all points of its patches
        product = (m, n, k, np.ones(len(work)))
        computing = points * _computing(work, device, known, product, FUSED, efficiency, compute_share)
        between = np.zeros(len(work))
    start = known.start_cycles / device.clock_hertz
    seconds = launches * start + _norm(computing, work.bytes / bandwidth) + between / bandwidth
    applies = work.is_winograd & ((launches > 1) | (work.side == 3))
    return np.where(applies, seconds, np.inf)


def on_lanes_seconds(works: WorkTable, device: Device) -> Floats:
    """Seconds of convolutions of FP32 tensors on the FP32 lanes, though TF32 is allowed.

    Libraries take such a kernel where it is faster: in first layers, whose three channels tensor cores pad to
    eight, on boards whose TF32 peak is little above that of their lanes. Winograd kernels do not count: none
    was seen where TF32 is allowed.
    """
    known = calibration()
    work = lower(table([replace(each, dtype="float32") for each in works.works]), device)
    work = replace(work, is_winograd=np.zeros(len(work), bool))
    shares = np.full(len(work), known.lane_share(device))
    bandwidth = streaming.calibration().share(device)
    return convolution_seconds(work, device, known.constants_of(device), shares, bandwidth)


def least_seconds(work: Lowered, device: Device) -> Floats:
    """Lower bound of convolutions: the roofline with the FLOP of the fastest Winograd algorithm."""
    # Winograd F(4 x 4, r x r) multiplies (r + 3)² points where a direct sum multiplies (4 r)².
    saved = np.where(work.is_winograd, (4 * work.side) ** 2 / (work.side + 3) ** 2, 1.0)
    moving = work.bytes / device.memory_bytes_per_second
    return np.maximum(work.flop / saved / work.peak, moving)


@dataclass(frozen=True)
class ConvolutionCalibration:
    """The calibration in `data/calibrations/convolution.json`.

    Shares of peak are by device. `older_share_of_peak` has those of a generation with other algorithms than
    all later ones, and its alone.
    """

    constants: ConvolutionConstants
    vendors: Mapping[str, ConvolutionConstants]
    share_of_peak: Mapping[str, float]
    older_share_of_peak: Mapping[str, float]
    tensor_share_of_peak: Mapping[str, float]
    measured_on_tensor_cores: frozenset[str]
    residuals: Residuals

    def constants_of(self, device: Device) -> ConvolutionConstants:
        """The constants of the vendor's libraries: `constants` are those of cuDNN."""
        return self.vendors.get(device.vendor, self.constants)

    def is_measured(self, device: Device) -> bool:
        """Whether convolutions were measured on this device."""
        return device.id in self.share_of_peak

    @once_per_device
    def lane_share(self, device: Device) -> float:
        """The share of its FP32 peak that a device achieves.

        Without measurements: the geometric mean of the share of similar devices and of the estimate from
        matrix products; on vendors with constants of their own, the share of similar devices.
        """
        known = devices()
        # A generation with algorithms of its own: shares of later devices say nothing of it.
        older = [
            (name, share)
            for name, share in self.older_share_of_peak.items()
            if known[name].generation == device.generation
        ]
        if older:
            return nearest_share(device, older)
        nearest = nearest_share(device, self.share_of_peak.items())
        if device.vendor in self.vendors:
            return nearest
        return (
            nearest if self.is_measured(device) else math.sqrt(nearest * self._as_products(device, "lanes"))
        )

    @once_per_device
    def tensor_share(self, device: Device) -> float:
        """The share of its half-precision peak that a device achieves: measured, else from products."""
        if device.id in self.measured_on_tensor_cores:
            return nearest_share(device, self.share_of_peak.items())
        if device.vendor in self.vendors:
            return share_by_rate(device, self.tensor_share_of_peak.items())
        return self._as_products(device, "tensor")

    @once_per_device
    def tf32_share(self, device: Device) -> float:
        """The share of its TF32 peak that a device achieves: that of half precision times TF32's reach.

        Power limits what kernels reach: those that reach less need less of it.
        """
        reach = tf32_reach(device, matrix.calibration().tf32_flop_per_cycle)
        if device.id in self.measured_on_tensor_cores or device.vendor in self.vendors:
            return self.tensor_share(device) * reach
        return self._as_products(device, "tensor", reach)

    def _as_products(self, device: Device, unit: str, reach: float = 1.0) -> float:
        """The share of products times the mean ratio of convolutions to products on measured devices.

        `reach` is the part of it that kernels of another type reach.
        """
        products = matrix.calibration()
        share = partial(products.of_single_kernels().share, unit)
        single = share(device) * self.over_products(unit, share) * reach
        return products.sustained(single, device, unit)

    def over_products(self, unit: str, share: Callable[[Device], float]) -> float:
        """The mean ratio of the shares of convolutions to those of products on measured devices."""
        known = devices()
        return math.exp(
            fmean(
                math.log(own / share(known[name]))
                for name, own in self.share_of_peak.items()
                if known[name].vendor not in self.vendors
                and (unit == "lanes" or name in self.measured_on_tensor_cores)
            )
        )


@cache
def calibration() -> ConvolutionCalibration:
    """The shipped calibration."""
    return load_calibration(ConvolutionCalibration, FILE)


def share_by_rate(device: Device, known: Iterable[tuple[str, float]]) -> float:
    """The share of a device from the FLOP a cycle and compute unit that similar devices achieve.

    AMD's matrix cores doubled their peak from one generation to the next, but the kernels of convolutions
    gained little: 850 FLOP a cycle on MI250X (of 1,024), 560 on MI300X (of 2,048).
    """

    def rate(each: Device) -> float:
        return peak_flop_per_second(each, "float16", matrix=True) / (each.sm_count * each.clock_hertz)

    scaled = [(name, min(1.0, share * rate(devices()[name]) / rate(device))) for name, share in known]
    return nearest_share(device, scaled)


def bias_seconds(works: WorkTable, device: Device) -> Floats:
    """Time of a pass over the result that adds the bias, where a convolution has one.

    Depthwise kernels add it themselves, and TorchInductor in the kernel that reads the result.
    """
    results = works.dim("batch") * works.dim("out_channels") * _product(works, "out_")
    bandwidth = device.memory_bytes_per_second * streaming.calibration().share(device)
    start = calibration().constants_of(device).start_cycles / device.clock_hertz
    has_pass = (works.dim("bias", 0) > 0) & ~lower(works, device).is_depthwise
    return np.asarray(np.where(has_pass, start + 2 * results * works.item_bytes / bandwidth, 0.0), float)


class ConvolutionModel(OperatorModel):
    """Prices convolutions and their gradients."""

    name: ClassVar[str] = "convolution"
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.CONVOLUTION})

    def seconds(self, works: WorkTable, device: Device) -> Floats:
        """Device seconds of each work."""
        known, work = calibration(), lower(works, device)
        compute = np.where(work.on_tensor, known.tensor_share(device), known.lane_share(device))
        in_tf32 = np.array([each.dtype == "tf32" for each in works.works], bool)
        if in_tf32.any():
            compute = np.where(in_tf32, known.tf32_share(device), compute)
        bandwidth = streaming.calibration().share(device)
        times = convolution_seconds(work, device, known.constants_of(device), compute, bandwidth)
        if in_tf32.any():
            times[in_tf32] = np.minimum(times[in_tf32], on_lanes_seconds(works.rows(in_tf32), device))
        times = np.maximum(times, least_seconds(work, device))
        return times + bias_seconds(works, device) if works.dim("bias", 0).any() else times

    def confidence(self, kind: Kind, device: Device) -> Confidence:
        """Residuals on measured or other devices."""
        del kind
        known = calibration()
        return known.residuals.confidence(known.is_measured(device), FILE)
