"""Linear layers and matrix multiplications, priced by the calibrated model of products.

The achieved share of peak of a device is fitted if it was measured. Otherwise it follows from the device's
power, adjusted by the shares of devices with the same kernels (compute capability) or of the same generation.
Where the kernels of a device were measured, they are corrected for (`corrections`). Benchmarks give the share
of single kernels; in training, power limits tensor cores to less (`TrainingPower`). TF32 runs the kernels of
half precision at a lower rate. FP8 times are those of the product alone, without casting its operands; with
scales for blocks they are longer by a measured factor.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np

from foretrain.facts.calibrations import calibration_content
from foretrain.facts.devices import Device, devices
from foretrain.prediction.operators import streaming
from foretrain.prediction.operators._base import Confidence, Knowledge, OperatorModel
from foretrain.prediction.operators.corrections import Forest, correction, forests, kernels_of
from foretrain.prediction.operators.corrections import key as correction_key
from foretrain.prediction.operators.fp8 import block_slowdown
from foretrain.prediction.operators.listing import Floats, WorkTable
from foretrain.prediction.operators.pricing import roofline_seconds
from foretrain.prediction.operators.products import (
    PowerLimit,
    ProductConstants,
    Products,
    TrainingPower,
    on_device,
    product_seconds,
    products,
    tf32_reach,
    unit_of,
)
from foretrain.workloads.ops import Kind
from foretrain.workloads.rules.fp8 import SCALED_BLOCKS

FILE = "products.json"
_VENDOR = "nvidia"
UNITS = ("lanes", "tensor", "fp8")
"""The units that were measured; TF32 follows from `tensor`."""
_SAME_GENERATION = 0.5
"""Weight of the deviation of devices of the same generation from the power limit."""


@dataclass(frozen=True)
class Kernels:
    """The constants of the libraries of one vendor, and the limit that power sets to its devices."""

    constants: ProductConstants
    limit: PowerLimit


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
        if device.id in self.shares:
            return self.shares[device.id] * self._by_power(device, devices().get(device.id, device))
        known = [devices()[name] for name in self.shares]
        twins = [each for each in known if kernels_of(each) == kernels_of(device)]
        if twins:  # the same silicon needs the same energy for a FLOP
            limit = self.kernels(device).limit
            likely = [limit.of_twin(device, each, self.shares[each.id], self.name) for each in twins]
            return float(np.exp(np.mean(np.log(likely))))
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
        size = device.sheet.number("sm_count")
        return min(twins, key=lambda twin: abs(twin.sheet.number("sm_count") - size), default=device)

    def expected(self, device: Device) -> float:
        """The share that a device sustains within its power."""
        return self.kernels(device).limit.share(device, self.name)

    def _by_power(self, device: Device, sold: Device) -> float:
        return 1.0 if device.tdp_watts == sold.tdp_watts else self.expected(device) / self.expected(sold)

    def without(self, device: Device) -> Unit:
        """The unit without measurements of the device's family."""
        kept = {name: s for name, s in self.shares.items() if devices()[name].family != device.family}
        return replace(self, shares=kept)


@dataclass(frozen=True)
class Calibration:
    """The calibration of products in `data/calibrations`, and of memory bandwidth.

    Without `training`, times are those of single kernels in a benchmark.
    """

    units: Mapping[str, Unit]
    training: TrainingPower | None
    tf32_flop_per_cycle: float
    residuals: Mapping[str, tuple[float, float]]
    corrections: Mapping[str, Forest]
    memory: streaming.Calibration

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

    def of_single_kernels(self) -> Calibration:
        """The calibration of kernels in a benchmark, which power does not limit."""
        return replace(self, training=None)

    def is_measured(self, device: Device) -> bool:
        """Whether products were measured on this device."""
        return any(device.id in unit.shares for unit in self.units.values())

    def without(self, device: Device) -> Calibration:
        """The calibration without measurements of the device's family; common constants are kept."""
        return replace(
            self,
            units={name: unit.without(device) for name, unit in self.units.items()},
            corrections={
                name: forest
                for name, forest in self.corrections.items()
                if name.split(":")[1] != kernels_of(device)
            },
            memory=self.memory.without(device),
        )


@cache
def calibration() -> Calibration:
    """The shipped calibration."""
    raw = calibration_content(FILE)
    return Calibration(
        units={name: _unit(name, content) for name, content in raw["units"].items()},
        training=_training(raw["training"]),
        tf32_flop_per_cycle=raw["tf32"]["flop_per_cycle"],
        residuals={split: (each["p10"], each["p90"]) for split, each in raw["residuals"].items()},
        corrections={
            key: forest for key, forest in forests().items() if key.split(":")[0] in raw["corrected"]
        },
        memory=streaming.calibration(),
    )


def _training(raw: Mapping[str, Any]) -> TrainingPower:
    return TrainingPower(raw["joules_per_flop"], raw["decline"], raw["eight_bit"])


def _unit(name: str, content: Mapping[str, Any]) -> Unit:
    vendors = {
        vendor: Kernels(_constants(each["constants"]), PowerLimit(**each["power_limit"]))
        for vendor, each in content["vendors"].items()
    }
    return Unit(name, vendors, content["shares"])


def _constants(raw: Mapping[str, Any]) -> ProductConstants:
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()
    }
    return ProductConstants(**values)


def modelled_seconds(
    work: Products, units: list[str], device: Device, known: Calibration | None = None
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


def seconds_of(work: Products, units: list[str], device: Device, known: Calibration | None = None) -> Floats:
    """Seconds of products, corrected if kernels of this device and unit were measured.

    A layer without bias takes the faster time of a layer and a plain product. So do all FP32 layers on
    kernels after Pascal's that were not measured: only on Pascal is a layer much slower (P100 0.60 of peak,
    its plain products 0.79; V100 0.87 and 0.72, A100 0.78 and 0.74, T4 0.39 and 0.37, NeuSight).
    """
    known = known or calibration()
    none = np.zeros(len(work), bool)
    seconds = _corrected_seconds(replace(work, is_bare=none), units, device, known)
    is_bare = work.is_bare
    if correction_key("lanes", device, False) not in known.corrections and _is_after_pascal(device):
        is_bare = is_bare | (~work.is_plain & (np.array(units) == "lanes"))
    if is_bare.any():
        plain = replace(work, is_plain=work.is_plain | is_bare, is_bare=none)
        seconds = np.minimum(seconds, _corrected_seconds(plain, units, device, known))
    return seconds


def _is_after_pascal(device: Device) -> bool:
    if device.vendor != "nvidia" or not device.sheet.has("compute_capability"):
        return False
    return int(device.sheet.text("compute_capability").split(".")[0]) >= _VOLTA


_VOLTA = 7
"""The first compute capability after Pascal's."""


def _corrected_seconds(work: Products, units: list[str], device: Device, known: Calibration) -> Floats:
    seconds = modelled_seconds(work, units, device, known)
    names = np.array(units)
    for name, is_plain in itertools.product(sorted(set(units)), (False, True)):
        forest = known.corrections.get(correction_key(name, device, is_plain))
        mine = (names == name) & (work.is_plain == is_plain)
        if forest is not None and mine.any():
            twin = known.units[name].measured_twin(device)
            there, modelled = work.at(mine), seconds[mine]
            if twin is not device:
                there = on_device(there, twin, name)
                modelled = modelled_seconds(there, [name] * len(there), twin, known)
            seconds[mine] *= correction(forest, there, twin, modelled)
    return seconds


class MatrixModel(OperatorModel):
    """Prices linear layers, matrix products and their gradients, which are products too.

    The model alone never predicts a larger product to be faster. With the correction for a library's choice
    of kernels it may, as libraries do: in one of ten of 5,880 steps from one size to a larger one, mostly by
    less than 5 %, in small batched products by up to 45 % (checked by
    `tests/testing/test_operator_models.py`).
    """

    name: ClassVar[str] = "products"
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.LINEAR, Kind.MATMUL})

    def __init__(self, known: Calibration | None = None) -> None:
        """With the shipped calibration, or another one."""
        self._known = known or calibration()

    def seconds(self, works: WorkTable, device: Device) -> Floats:
        """Device seconds of each work."""
        units = [unit_of(work.dtype) for work in works.works]
        times = seconds_of(products(works, device), units, device, self._known)
        times = np.where(works.dim(SCALED_BLOCKS, 0) > 0, times * block_slowdown(device), times)
        return np.maximum(times, roofline_seconds(works, device))

    def confidence(self, kind: Kind, device: Device) -> Confidence:
        """Residuals on measured or other devices."""
        del kind
        is_seen = self._known.is_measured(device)
        p10, p90 = self._known.residuals["seen" if is_seen else "unseen"]
        knowledge = Knowledge.CALIBRATED if is_seen else Knowledge.EXTRAPOLATED
        return Confidence(knowledge, p10, p90, f"calibrations/{FILE}")
