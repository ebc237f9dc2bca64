"""Fits the model of matrix products to measured products, and boosted trees to what it leaves.

The constants are shared by all devices of one vendor and kind of arithmetic unit; a device adds one number,
the share of its peak that it sustains. An unmeasured device takes that from its power (`PowerLimit`), so
holding a GPU out of the fit rehearses an unknown one. Times of short bursts have a share of their own, which
is not kept. Times that include casting an operand to FP8 have a cast of their own:

    t = product + c0 + b m k / bandwidth
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from calibration.boosted_trees import from_lightgbm
from calibration.datasets.measurements import Measurements, Names
from calibration.kernels.harness import observed
from calibration.least_squares import minimise
from foretrain.facts.calibrations import Forest
from foretrain.facts.devices import Device, device
from foretrain.prediction.operators import streaming
from foretrain.prediction.operators.matrix import (
    CORRECTION_BOUND,
    TILES,
    Kernels,
    PowerLimit,
    ProductConstants,
    Products,
    Unit,
    headroom,
    product_seconds,
    products,
    tree_features,
    unit_of,
)
from foretrain.prediction.operators.pricing import Flags, Floats
from foretrain.prediction.operators.streaming import nearest_share, published_shares

ROWS_PER_DEVICE = 400
"""How many measurements of a device the constants are fitted to: there are 24 of them."""
_KIN_WEIGHT = 0.3
"""Weight of samples of another unit: they lead only where a unit has few of its own."""
BEFORE_KERNEL = 0.75
"""How much of the host's dispatch is over before the kernel starts: what fits NeuSight's products best."""
_SHORTEST = 0.005
_TILES_OF = {"nvidia": len(TILES), "amd": len(TILES) + 1}
_CACHE_OF = {"nvidia": 48.0, "amd": 64.0}
"""Cache bytes a cycle of one SM to start from: a second-level cache of AMD delivers 2,048 a cycle to 32 to 38
compute units ("AMD CDNA 3 architecture", white paper)."""
_DECLINE = 0.12
"""Energy of a FLOP saved per year, to start from: about half in six years."""
_IMMATURE = frozenset({"maxwell", "gcn5"})
_LIKELY_SHARE = -0.2
"""Logarithm of the share of peak a device is likely to achieve."""
_SHARE_PULL = 3.0
_LIKELY_HEADROOM = 0.5e-12
"""Joules a FLOP of boards of 2023-25 in half precision, for a vendor of which nothing is left to fit to."""
_PULL = 0.4
"""How hard constants are held near their start: as one measurement off by 40 % for each e-fold."""
_ROUNDS = 80
_SETTINGS = {
    "objective": "l1",
    "learning_rate": 0.15,
    "num_leaves": 31,
    "min_data_in_leaf": 50,
    "max_depth": 8,
    "verbosity": -1,
    "num_threads": 1,
    "seed": 1,
    "deterministic": True,
    "force_row_wise": True,
}
_VISIBLE = 1.15
"""How much longer than the rest of the dispatch a kernel must be to show in the time measured."""
_HIDDEN_WEIGHT = 0.1
_LIKELY_CAST = (8.0, 5.0)
"""Microseconds and bytes for each element of a cast: another kernel; two bytes read twice, one written."""


@dataclass(frozen=True)
class Cast:
    """What casting an operand to FP8 adds to a time: seconds, and bytes for each of its m x k elements."""

    seconds: float
    bytes_per_element: float

    def of(self, work: Products, device: Device) -> Floats:
        """Seconds added to each product."""
        elements = work.batch * work.m * work.k
        return np.asarray(self.seconds + self.bytes_per_element * elements / device.memory_bytes_per_second)


@dataclass(frozen=True)
class Harness:
    """How a data set was timed: host overhead in short times, bursts on an idle GPU, casts to FP8 within."""

    shows_host: bool = False
    is_burst: bool = False
    casts: bool = False


@dataclass(frozen=True, eq=False)
class Sample:
    """The measured products of one data set on one device and unit, with what the stopwatch adds."""

    source: str
    device: Device
    unit: str
    harness: Harness
    work: Products
    floor_seconds: Floats
    seconds: Floats
    positions: NDArray[np.int64]

    @property
    def share_key(self) -> str:
        """Samples with the same key share one share of peak: the device, but bursts by themselves."""
        return f"{self.source}:{self.device.id}" if self.harness.is_burst else self.device.id

    def at(self, rows: Flags | NDArray[np.int64]) -> Sample:
        """Only some of the rows."""
        return replace(
            self,
            work=self.work.at(rows),
            floor_seconds=self.floor_seconds[rows],
            seconds=self.seconds[rows],
            positions=self.positions[rows],
        )

    def show(self, kernel_seconds: Floats, cast: Cast | None = None) -> Floats:
        """What the stopwatch shows for kernels of these lengths."""
        shown = observed(kernel_seconds, self.floor_seconds, BEFORE_KERNEL)
        return shown if cast is None else shown + cast.of(self.work, self.device)


@dataclass(frozen=True)
class ProductFit:
    """A fitted unit, with the shares of bursts and the casts, which belong to harnesses.

    `shares` has those of `unit`, and those of bursts under their `share_key`.
    """

    unit: Unit
    shares: Mapping[str, float]
    casts: Mapping[str, Cast] = field(default_factory=dict)

    def cast(self, part: Sample) -> Cast | None:
        """The cast in the times of a sample: that of its device, else the mean of the others."""
        if not part.harness.casts:
            return None
        if part.device.id in self.casts:
            return self.casts[part.device.id]
        pairs = np.array([(each.seconds, each.bytes_per_element) for each in self.casts.values()])
        seconds, per_element = np.exp(np.log(pairs).mean(axis=0)).tolist()
        return Cast(seconds, per_element)

    def share(self, part: Sample) -> float:
        """The share of peak of a sample."""
        return self.shares.get(part.share_key) or self.unit.share(part.device)

    def kernel_seconds(self, part: Sample, bandwidth_share: float | None = None) -> Floats:
        """Kernel seconds of the works of a sample."""
        constants = self.unit.kernels(part.device).constants
        return modelled(part, constants, self.share(part), bandwidth_share)

    def shown(self, part: Sample, kernel_seconds: Floats) -> Floats:
        """What the stopwatch would show."""
        return part.show(np.maximum(kernel_seconds, least_seconds(part)), self.cast(part))


_PLAIN = Harness()


def samples(measurements: Measurements, harness: Harness = _PLAIN) -> list[Sample]:
    """Measurements by device and unit. A harness with host overhead shows it in its shortest times.

    Only FP8 products are cast to.
    """
    units = np.array([unit_of(work.dtype) for work in measurements.works])
    parts = []
    for name in measurements.devices:
        target = device(name)
        for unit in sorted(set(units.tolist())):
            rows = np.flatnonzero((measurements.device_ids == name) & (units == unit))
            if len(rows):
                seconds, labels = measurements.seconds[rows], measurements.labels[rows]
                floor = _floors(seconds, labels) if harness.shows_host else np.zeros(len(rows))
                chosen = np.zeros(len(measurements), bool)
                chosen[rows] = True
                work = products(measurements.where(chosen).table, target)
                timed = replace(harness, casts=harness.casts and unit == "fp8")
                parts.append(Sample(measurements.source, target, unit, timed, work, floor, seconds, rows))
    return parts


def _floors(seconds: Floats, labels: Names) -> Floats:
    """The shortest times of each operator: `linear` takes the host longer to dispatch than `bmm` does."""
    floor = np.zeros(len(seconds))
    for label in sorted(set(labels.tolist())):
        same = labels == label
        floor[same] = np.quantile(seconds[same], _SHORTEST)
    return floor


def thinned(part: Sample, rows: int = ROWS_PER_DEVICE) -> Sample:
    """A random part of a sample, the same every time."""
    if len(part.seconds) <= rows:
        return part
    return part.at(np.sort(np.random.default_rng(0).choice(len(part.seconds), rows, replace=False)))


def is_cold(part: Sample) -> Flags:
    """Which rows cannot have come from the cache: more bytes than it holds, or bound by arithmetic."""
    moving = part.work.bytes / part.device.memory_bytes_per_second
    sheet = part.device.sheet
    caches = [sheet.number(name) for name in ("l2_bytes", "infinity_cache_bytes") if sheet.has(name)]
    large = part.work.bytes > max(caches)
    return np.asarray(large | (part.work.flop / part.work.peak > moving))


def least_seconds(part: Sample) -> Floats:
    """The roofline of a sample's works."""
    work, bandwidth = part.work, part.device.memory_bytes_per_second
    return np.asarray(np.maximum(work.flop / work.peak, work.bytes / bandwidth))


def _start(vendor: str) -> Floats:
    """The free numbers of the constants to start from: the efficiencies of tiles twice, then the others."""
    others = [np.log(30.0), 1.0, np.log(256.0), np.log(_CACHE_OF[vendor])]
    return np.concatenate([np.full(2 * _TILES_OF[vendor], -0.15), others])


def constants(x: Floats, start_cycles: float) -> ProductConstants:
    """Constants from the free numbers of the fit."""
    count = (len(x) - 4) // 2
    k_start, rounding, split, cache = x[-4:].tolist()
    return ProductConstants(
        start_cycles=start_cycles,
        tile_efficiency=tuple(np.minimum(1.0, np.exp(x[:count])).tolist()),
        plain_efficiency=tuple(np.minimum(1.0, np.exp(x[count : 2 * count])).tolist()),
        k_start=float(np.exp(k_start)),
        wave_rounding=float(1 / (1 + np.exp(-rounding))),
        least_split=float(np.exp(split)),
        cache_bytes_per_cycle=float(np.exp(cache)),
    )


def modelled(
    part: Sample, known: ProductConstants, share: float, bandwidth_share: float | None = None
) -> Floats:
    """Kernel seconds of the works of a sample, at its calibrated share of bandwidth or a given one."""
    bandwidth = streaming.calibration().share(part.device) if bandwidth_share is None else bandwidth_share
    return product_seconds(part.work, part.device, known, share, bandwidth)


def bandwidth_without_family(target: Device) -> float:
    """The share of bandwidth of a device without its own fitted times: published, else that of its like."""
    fitted = streaming.calibration().without(target).delivered_share
    return nearest_share(target, (*published_shares(), *fitted.items()))


def fit(
    name: str,
    parts: Sequence[Sample],
    start_cycles: Mapping[str, float],
    extra: Sequence[Sample] = (),
    kin: Sequence[Sample] = (),
) -> ProductFit:
    """The unit `name`, to which `parts` belong; of `extra` parts only the share of their device is fitted.

    `kin`: samples of another unit whose kernels are similar, which constants are fitted to as well.
    """
    vendors = sorted({part.device.vendor for part in (*parts, *kin)})
    fitted = {
        vendor: _fit_vendor(
            [part for part in (*parts, *kin) if part.device.vendor == vendor], start_cycles[vendor], name
        )
        for vendor in vendors
    }
    every = {key: share for each in fitted.values() for key, share in each.shares.items()}
    shares = {part.device.id: every[part.device.id] for part in parts if part.share_key == part.device.id}
    for part in extra:
        if part.device.id not in shares:
            kernels = fitted.get(part.device.vendor, fitted[vendors[-1]])  # NVIDIA's for AMD of 2017
            shares[part.device.id] = share_of(part, kernels.constants)
    kernels_by_vendor = {}
    for vendor, each in fitted.items():
        mine = {key: s for key, s in shares.items() if device(key).vendor == vendor or len(fitted) == 1}
        kernels_by_vendor[vendor] = Kernels(each.constants, power_limit(mine, name))
    casts = {key: cast for each in fitted.values() for key, cast in each.casts.items()}
    return ProductFit(Unit(name, kernels_by_vendor, shares), every | shares, casts)


@dataclass(frozen=True)
class _VendorFit:
    constants: ProductConstants
    shares: Mapping[str, float]
    casts: Mapping[str, Cast]


def _fit_vendor(parts: Sequence[Sample], start_cycles: float, unit: str) -> _VendorFit:
    """Constants, shares and casts of the samples of one vendor; shares of other units bear their names."""
    kept = [thinned(part.at(is_cold(part))) for part in parts]
    key_of = [part.share_key if part.unit == unit else f"{part.unit}:{part.share_key}" for part in kept]
    keys = sorted(set(key_of))
    casting = sorted({part.device.id for part in kept if part.harness.casts})
    likely = _start(kept[0].device.vendor)
    first, second = len(likely), len(likely) + len(keys)

    def at(x: Floats) -> _VendorFit:
        pairs = np.exp(x[second:]).reshape(-1, 2).tolist()
        return _VendorFit(
            constants(x[:first], start_cycles),
            dict(zip(keys, np.exp(x[first:second]).tolist(), strict=True)),
            {key: Cast(1e-6 * seconds, each) for key, (seconds, each) in zip(casting, pairs, strict=True)},
        )

    def residuals(x: Floats) -> Floats:
        known = at(x)
        off = []
        for part, key in zip(kept, key_of, strict=True):
            cast = known.casts[part.device.id] if part.harness.casts else None
            predicted = part.show(modelled(part, known.constants, known.shares[key]), cast)
            weight = np.sqrt(ROWS_PER_DEVICE / len(part.seconds)) * (
                1.0 if part.unit == unit else _KIN_WEIGHT
            )
            off.append((np.log(predicted) - np.log(part.seconds)) * weight)
        held = [_PULL * (x[:first] - likely), _SHARE_PULL * (x[first:second] - _LIKELY_SHARE)]
        return np.concatenate([*off, *held, _PULL * (x[second:] - start[second:])])

    start = np.concatenate(
        [likely, np.full(len(keys), _LIKELY_SHARE), np.tile(np.log(_LIKELY_CAST), len(casting))]
    )
    with np.errstate(divide="ignore", invalid="ignore"):  # a step too far, which the search takes back
        return at(minimise(residuals, start, evaluations=20))


def share_of(part: Sample, known: ProductConstants) -> float:
    """The share of peak at which given constants fit a sample best."""
    kept = thinned(part.at(is_cold(part)))
    tried = np.exp(np.linspace(np.log(0.1), np.log(1.3), 60))
    off = [np.mean(np.abs(np.log(kept.show(modelled(kept, known, float(s))) / kept.seconds))) for s in tried]
    return float(tried[int(np.argmin(off))])


def power_limit(shares: Mapping[str, float], unit: str) -> PowerLimit:
    """The limit of power that fits the shares of devices best; three numbers, held near a likely start.

    Maxwell boards and AMD's of 2017 ran libraries that left far more unused than power did: left out.
    """
    known = {name: share for name, share in shares.items() if device(name).generation not in _IMMATURE}
    logs = np.log(np.array(list(known.values())))
    typical = np.median([headroom(device(name), unit) for name in known]) if known else _LIKELY_HEADROOM
    middle = float(np.log(typical / 1.5))
    start = np.array([-0.05, middle, _DECLINE])

    def limit(x: Floats) -> PowerLimit:
        return PowerLimit(float(np.exp(x[0])), float(np.exp(x[1])), float(x[2]))

    def residuals(x: Floats) -> Floats:
        predicted = np.log(np.array([limit(x).share(device(name), unit) for name in known]))
        return np.concatenate([predicted - logs, (x - start) * [0.3, 0.2, 1.0]])

    return limit(minimise(residuals, start, scale=0.2))


def fit_trees(parts: Sequence[Sample], modelled: Sequence[Floats]) -> Forest:
    """Trees of log(measured / modelled), a measurement counting by how much of it is kernel, not harness.

    Kernels that the harness hides carry no information; they count a little for the model as it is.
    """
    import lightgbm

    inputs, departures, weights = [], [], []
    for part, predicted in zip(parts, modelled, strict=True):
        kernel = part.seconds - BEFORE_KERNEL * part.floor_seconds
        is_hidden = kernel < _VISIBLE * (1 - BEFORE_KERNEL) * part.floor_seconds
        kernel = np.where(is_hidden, predicted, kernel)
        inputs.append(tree_features(part.work, part.device, predicted))
        departures.append(np.clip(np.log(kernel / predicted), -CORRECTION_BOUND, CORRECTION_BOUND))
        weights.append(np.where(is_hidden, _HIDDEN_WEIGHT, kernel / part.seconds))
    data = lightgbm.Dataset(
        np.concatenate(inputs), np.concatenate(departures), weight=np.concatenate(weights)
    )
    return from_lightgbm(lightgbm.train(_SETTINGS, data, _ROUNDS).dump_model())
