"""Fits the convolution model to NeuSight, DeepBench and MIOpen and makes `calibrations/convolution.json`.

Times of one device in two data sets may differ by the age of their libraries, so each data set has its own
share of peak while fitting; the device's share is their mean. Fits are in log space, shares and constants
shrunk to plain starting values. Errors are those on held-out shapes and on held-out GPU families.

Kepler is in neither data set. Its share is that at which the convolutions Justus timed on a K40 and a K80 are
as much slower than their price as on the GPUs that are: cuDNN has no Winograd kernels for it, and its 192
lanes a multiprocessor are hard to feed. It stands for Kepler alone, not for generations without measurements.

AMD's libraries have constants of their own, fitted to MIOpen's dense convolutions over two axes and to
DeepBench's AMD devices, and a share of peak for FP32 and one for half precision: other kernels run them. In
half precision MIOpen has kernels that want channels-last and are preceded and followed by transposes, and
slower ones that read channels-first: whichever is faster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.datasets import (
    aiconfigurator,
    amd_kernels,
    deepbench,
    justus,
    kernelbench_layers,
    neusight,
)
from calibration.datasets.measurements import Measurements
from calibration.files import HeldOut, data_used
from calibration.kernels.harness import observed
from calibration.least_squares import minimise
from foretrain.facts.calibrations import calibration_content
from foretrain.facts.devices import Device, device
from foretrain.prediction.operators import streaming
from foretrain.prediction.operators.convolution import FILE as FILE
from foretrain.prediction.operators.convolution import (
    TILES,
    ConvolutionConstants,
    Lowered,
    convolution_seconds,
    least_seconds,
    lower,
    share_by_rate,
)
from foretrain.prediction.operators.pricing import Floats
from foretrain.prediction.operators.streaming import nearest_share
from foretrain.workloads.ops import Direction

DEPTHWISE_SHARE = 0.15
"""Assumed for half precision, of which whole steps correct it: no public measurement was found."""
_LONG_DEPTHWISE = 100e-6
"""Seconds from which depthwise convolutions show the rate of their kernel."""
UNMEASURED_DEPTHWISE_RATE = DEPTHWISE_SHARE * 2 * 128
"""FLOP a cycle and SM without KernelBench: the share assumed for half precision, of 128 lanes."""
_LIKELY_DEPTHWISE = 8.0
"""FLOP a cycle and SM of depthwise kernels while fitting dense ones, which have none."""
_HOST_SHOWS = frozenset({"neusight", amd_kernels.MIOPEN})
_HARNESS_SHARE = 0.001
"""The quantile of NeuSight's convolution times taken for its harness floor."""
_BEFORE_KERNEL = 0.9
"""How much of that floor passes before the kernel: set-up of descriptors and workspace; fits end near 1."""
_MIOPEN_TRANSPOSES = 3.0
"""Of input, weights and output: ROCm/MIOpen, conv_asm_implicit_gemm_gtc_*_nhwc.cpp, if channels-first."""
_N = len(TILES)
_START = np.array(
    [
        *(1.0, 1.0, 1.0, 0.0, -1.0, -1.0),
        *(1.0, 1.0, -1.0, np.log(30.0), 0.0, 1.0, 1.0, np.log(256.0), 0.0, np.log(64.0), 0.0, -1.0),
    ]
)
FOLDS = 3
_ALONE_FLOOR, _ABOVE_FLOOR = 0.005, 3.0
"""The quantile of Justus' times taken for its harness floor; prices that many floors long are compared."""
_OLDER = "kepler"


@dataclass(frozen=True, eq=False)
class Sample:
    """What one device showed in one data set."""

    source: str
    device: Device
    work: Lowered
    seconds: Floats
    floor: float

    def at(self, rows: NDArray[np.int64]) -> Sample:
        """Only some of the works."""
        return replace(self, work=self.work.at(rows), seconds=self.seconds[rows])


@dataclass(frozen=True)
class ConvolutionFit:
    """What was learned, from which devices (by source and id); `by_rate`: how shares carry over to others."""

    constants: ConvolutionConstants
    shares: Mapping[tuple[str, str], float]
    by_rate: bool = False

    def by_device(self) -> dict[str, float]:
        """The share of each device, the geometric mean over its data sets."""
        return {
            name: float(np.exp(np.mean([np.log(s) for (_, n), s in self.shares.items() if n == name])))
            for name in sorted({name for _, name in self.shares})
        }

    def shown(self, sample: Sample) -> Floats:
        """Predicted times as the harness shows them."""
        key = sample.source, sample.device.id
        similar = share_by_rate if self.by_rate else nearest_share
        share = self.shares[key] if key in self.shares else similar(sample.device, self.by_device().items())
        bandwidth = streaming.calibration().share(sample.device)
        shares = np.full(len(sample.work), share)
        kernel = convolution_seconds(sample.work, sample.device, self.constants, shares, bandwidth)
        kernel = np.maximum(kernel, least_seconds(sample.work, sample.device))
        if not sample.floor:
            return kernel
        return observed(kernel, np.full(len(kernel), sample.floor), _BEFORE_KERNEL)


def samples(measurements: Measurements) -> tuple[Sample, ...]:
    """The measurements by device; NeuSight's and MIOpen's harnesses show their dispatch floor."""
    split = []
    for name in measurements.devices:
        here = measurements.device_ids == name
        floor = (
            float(np.quantile(measurements.seconds[here], _HARNESS_SHARE))
            if measurements.source in _HOST_SHOWS
            else 0.0
        )
        work = lower(measurements.table.rows(here), device(name))
        split.append(Sample(measurements.source, device(name), work, measurements.seconds[here], floor))
    return tuple(split)


def fit(
    parts: Sequence[Sample], start_cycles: float, most: int = 300, is_miopen: bool = False
) -> ConvolutionFit:
    """Constants and shares from at most `most` works of each sample."""
    generator = np.random.default_rng(0)
    picked = [
        part.at(np.sort(generator.choice(len(part.seconds), min(most, len(part.seconds)), replace=False)))
        for part in parts
    ]
    keys = [(part.source, part.device.id) for part in picked]

    def at(x: Floats) -> ConvolutionFit:
        shares = dict(zip(keys, _sigmoid(x[len(_START) :]).tolist(), strict=True))
        return ConvolutionFit(_constants(x[: len(_START)], start_cycles, is_miopen), shares)

    def residuals(x: Floats) -> Floats:
        learned = at(x)
        errors = [np.log(learned.shown(part) / part.seconds) for part in picked]
        drawn = [0.05 * (x[: len(_START)] - _START), 0.3 * (x[len(_START) :] - 1.5)]
        return np.concatenate(errors + drawn)

    return at(minimise(residuals, np.concatenate([_START, np.ones(len(keys))]), scale=0.1, evaluations=25))


def _sigmoid(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-x))


def _constants(x: Floats, start_cycles: float, is_miopen: bool) -> ConvolutionConstants:
    """The constants of a point of the search.

    With MIOpen a unit has shares of its own, so that an efficiency of tensor cores would be the same number
    twice; its place is taken by that of kernels which need no conversion.
    """
    bounded, positive = _sigmoid(x).tolist(), np.exp(np.minimum(x, 50)).tolist()
    return ConvolutionConstants(
        start_cycles=start_cycles,
        tile_efficiency=tuple(bounded[:_N]),
        fused_winograd=bounded[_N],
        split_winograd=bounded[_N + 1],
        transform=positive[_N + 2],
        k_start=positive[_N + 3],
        wave_rounding=bounded[_N + 4],
        direction_efficiency=(1.0, bounded[_N + 5], bounded[_N + 6]),
        least_split=positive[_N + 7],
        tensor_efficiency=1.0 if is_miopen else bounded[_N + 8],
        tensor_k_start=positive[_N + 9],
        strided_gradient=bounded[_N + 10],
        conversion=2 * bounded[_N + 11],
        depthwise_share=DEPTHWISE_SHARE,
        depthwise_flop_per_cycle=_LIKELY_DEPTHWISE,
        conversion_launches=_MIOPEN_TRANSPOSES if is_miopen else 0.0,
        direct=bounded[_N + 8] if is_miopen else 0.0,
    )


def read(data: Path) -> tuple[Measurements, ...]:
    """The data sets fitted to. Gradients of an input of a few channels, which no training asks for, are left
    out: they are those of first layers.
    """
    trained = deepbench.read_convolutions(data)
    asked = np.array(
        [
            work.direction is not Direction.INPUT_GRADIENT or work.dims["in_channels"] > 3
            for work in trained.works
        ]
    )
    return neusight.read_convolutions(data), trained.where(asked)


def depthwise_rate(measured: Measurements) -> float:
    """FLOP a cycle and SM of long depthwise convolutions on FP32 lanes, the median over rows."""
    rates = []
    for part in samples(measured):
        chosen = part.work.is_depthwise & (part.seconds > _LONG_DEPTHWISE) & (part.work.item_bytes == 4)
        sheet = part.device.sheet
        cycles = part.seconds * sheet.number("sm_count") * sheet.number("boost_clock_hertz")
        rates += (part.work.flop / cycles)[chosen].tolist()
    return float(np.median(rates))


@dataclass(frozen=True, eq=False)
class AmdData:
    """MIOpen's dense convolutions over two axes by unit, and DeepBench's AMD devices with FP32's."""

    units: Mapping[str, tuple[Sample, ...]]
    start_cycles: float

    def without(self, family: str) -> AmdData:
        """The data without a family of devices."""
        kept = {
            unit: tuple(part for part in parts if part.device.family != family)
            for unit, parts in self.units.items()
        }
        return replace(self, units=kept)


def read_amd(data: Path) -> AmdData:
    """The AMD samples that are fitted to."""
    every = amd_kernels.read_convolutions(data)
    is_dense = np.array([work.dims["groups"] == 1 and "depth" not in work.dims for work in every.works])
    is_full = np.array([work.dtype == "float32" for work in every.works])
    older = deepbench.read_convolutions(data)
    vendors = np.array([device(name).vendor for name in older.device_ids.tolist()])
    return AmdData(
        {
            "lanes": (*samples(every.where(is_dense & is_full)), *samples(older.where(vendors == "amd"))),
            "tensor": samples(every.where(is_dense & ~is_full)),
        },
        amd_kernels.start_cycles(data),
    )


def fit_amd(known: AmdData) -> dict[str, ConvolutionFit]:
    """One set of constants for both units, and the shares of each."""
    named = [
        replace(part, source=f"{unit} {part.source}") for unit, parts in known.units.items() for part in parts
    ]
    learned = fit(named, known.start_cycles, most=400, is_miopen=True)
    return {
        unit: ConvolutionFit(
            learned.constants,
            {
                (source.removeprefix(f"{unit} "), name): share
                for (source, name), share in learned.shares.items()
                if source.startswith(f"{unit} ")
            },
            by_rate=unit == "tensor",
        )
        for unit in known.units
    }


def amd_unseen(known: AmdData) -> list[tuple[str, Sample, Floats]]:
    """Unit, sample and prediction by a fit without the device's family, of MIOpen's samples."""
    results = []
    families = sorted({part.device.family for part in known.units["tensor"]})
    for family in families:
        learned = fit_amd(known.without(family))
        results += [
            (unit, part, learned[unit].shown(part))
            for unit, parts in known.units.items()
            for part in parts
            if part.device.family == family
        ]
    return results


def fitted_on(data_sets: Sequence[Measurements], start_cycles: float) -> ConvolutionFit:
    """The fit to all measurements."""
    return fit([part for one in data_sets for part in samples(one)], start_cycles)


def cross_validate(data_sets: Sequence[Measurements], start_cycles: float) -> tuple[HeldOut, ...]:
    """Each measurement as predicted by a fit without its shape, and by one without its family of GPUs."""
    parts = [samples(one) for one in data_sets]
    held_out = [HeldOut(np.full(len(one), np.nan), np.full(len(one), np.nan)) for one in data_sets]
    folds = [one.fold(FOLDS) for one in data_sets]
    for number in range(FOLDS):
        kept = [
            _keep(part, fold[one.device_ids == part.device.id] != number)
            for one, fold, split in zip(data_sets, folds, parts, strict=True)
            for part in split
        ]
        learned = fit(kept, start_cycles)
        for one, fold, split, result in zip(data_sets, folds, parts, held_out, strict=True):
            for part in split:
                here = one.device_ids == part.device.id
                result.shape_unseen[here & (fold == number)] = learned.shown(part)[fold[here] == number]
    everything = [part for split in parts for part in split]
    for family in sorted({part.device.family for part in everything}):
        learned = fit([part for part in everything if part.device.family != family], start_cycles)
        for one, split, result in zip(data_sets, parts, held_out, strict=True):
            for part in split:
                if part.device.family == family:
                    result.device_unseen[one.device_ids == part.device.id] = learned.shown(part)
    return tuple(held_out)


def older_shares(data: Path, learned: ConvolutionFit) -> dict[str, float]:
    """The shares of Kepler's boards, from layers timed on them and on GPUs of the fit in one harness."""
    timed = justus.read_convolutions(data)
    fitted = learned.by_device()

    def slowness(name: str, share: float) -> float:
        here = timed.device_ids == name
        seconds, work = timed.seconds[here], lower(timed.table.rows(here), device(name))
        known = ConvolutionFit(learned.constants, {(timed.source, name): share})
        price = known.shown(Sample(timed.source, device(name), work, seconds, 0.0))
        floor = float(np.quantile(seconds, _ALONE_FLOOR))
        long = price > _ABOVE_FLOOR * floor
        return float(np.median((seconds - floor)[long] / price[long]))

    usual = np.median([slowness(name, fitted[name]) for name in timed.devices if name in fitted])
    shares = {}
    for name in timed.devices:
        if device(name).generation == _OLDER:
            tried = np.linspace(0.1, 1.0, 91)
            slow = [slowness(name, share) for share in tried.tolist()]
            shares[name] = float(np.interp(usual, slow, tried))
    return shares


def without_kernelbench() -> Mapping[str, Any]:
    """The entries without KernelBench, the one source of depthwise convolutions on NVIDIA's GPUs."""
    known = calibration_content(FILE)["constants"]
    return {"constants": {**known, "depthwise_flop_per_cycle": UNMEASURED_DEPTHWISE_RATE}}


def _keep(part: Sample, chosen: np.ndarray[Any, Any]) -> Sample:
    return part.at(np.flatnonzero(chosen))


def calibrate(data: Path) -> Mapping[str, Any]:
    """The content of the calibration file."""
    data_sets = read(data)
    cycles = aiconfigurator.start_cycles(data)
    learned = fitted_on(data_sets, cycles)
    held_out = cross_validate(data_sets, cycles)
    seconds = np.concatenate([one.seconds for one in data_sets])
    amd = fit_amd(read_amd(data))
    depthwise = {
        "nvidia": depthwise_rate(kernelbench_layers.read_convolutions(data)),
        "amd": depthwise_rate(amd_kernels.read_convolutions(data)),
    }
    amd_constants = replace(amd["lanes"].constants, depthwise_flop_per_cycle=depthwise["amd"])
    return {
        "model": "convolution",
        "data": data_used((*data_sets, amd_kernels.read_convolutions(data), justus.read_convolutions(data))),
        "assumed": [
            "depthwise_share: no public measurement of depthwise kernels in half precision was found"
        ],
        "residuals_of": "measured / predicted; seen: by shape, unseen: by family of GPUs left out",
        "residuals": HeldOut(
            np.concatenate([one.shape_unseen for one in held_out]),
            np.concatenate([one.device_unseen for one in held_out]),
        ).residuals(seconds),
        "constants": asdict(replace(learned.constants, depthwise_flop_per_cycle=depthwise["nvidia"])),
        "vendors": {"amd": asdict(amd_constants)},
        "measured_on_tensor_cores": sorted(
            {
                str(name)
                for one in data_sets
                for work, name in zip(one.works, one.device_ids.tolist(), strict=True)
                if work.dtype == "float16"
            }
        ),
        "share_of_peak": learned.by_device() | amd["lanes"].by_device(),
        "older_share_of_peak": older_shares(data, learned),
        "tensor_share_of_peak": amd["tensor"].by_device(),
    }
