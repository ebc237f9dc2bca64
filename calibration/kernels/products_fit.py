"""Fits the model of matrix products to measured products, and boosted trees to what it leaves.

The constants are shared by all devices of one kind of arithmetic unit; a device adds one number, the share of
its peak that it achieves. An unmeasured device takes that from its power (`PowerLimit`), so holding a GPU out
of the fit rehearses an unknown one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration.datasets.measurements import Measurements, Names
from calibration.kernels.harness import observed
from calibration.least_squares import minimise
from foretrain.facts.devices import Device, device
from foretrain.prediction.operators import streaming
from foretrain.prediction.operators.bandwidth import nearest_share, published
from foretrain.prediction.operators.corrections import BOUND, Forest, features, from_lightgbm
from foretrain.prediction.operators.listing import Flags, Floats
from foretrain.prediction.operators.products import (
    TILES,
    PowerLimit,
    ProductConstants,
    Products,
    headroom,
    product_seconds,
    products,
    unit_of,
)

ROWS_PER_DEVICE = 1000
"""How many measurements of a device the constants are fitted to: there are 18 of them."""
BEFORE_KERNEL = 0.75
"""How much of the host's dispatch is over before the kernel starts: what fits NeuSight's products best."""
_SHORTEST = 0.005
_COUNT = len(TILES)
_START = np.concatenate([np.full(2 * _COUNT, -0.15), [np.log(30.0), 1.0, np.log(256.0), np.log(48.0)]])
_DECLINE = 0.12
"""Energy of a FLOP saved per year, to start from: about half in six years."""
_IMMATURE = frozenset({"maxwell", "gcn5"})
_LIKELY_SHARE = -0.2
"""Logarithm of the share of peak a device is likely to achieve."""
_SHARE_PULL = 3.0
_PULL = 0.4
"""How hard constants are held near their start: as one measurement off by 40 % for each e-fold."""
_ROUNDS = 80
_SETTINGS = {
    "objective": "l1",
    "learning_rate": 0.15,
    "num_leaves": 31,
    "min_data_in_leaf": 20,
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


@dataclass(frozen=True, eq=False)
class Sample:
    """The measured products of one data set on one device and unit, with what the stopwatch adds."""

    source: str
    device: Device
    unit: str
    work: Products
    floor_seconds: Floats
    seconds: Floats
    positions: NDArray[np.int64]

    def at(self, rows: Flags | NDArray[np.int64]) -> Sample:
        """Only some of the rows."""
        return replace(
            self,
            work=self.work.at(rows),
            floor_seconds=self.floor_seconds[rows],
            seconds=self.seconds[rows],
            positions=self.positions[rows],
        )

    def show(self, kernel_seconds: Floats) -> Floats:
        """What the stopwatch shows for kernels of these lengths."""
        return observed(kernel_seconds, self.floor_seconds, BEFORE_KERNEL)


@dataclass(frozen=True)
class ProductFit:
    """Constants of a unit, achieved shares by device, and the limit their power sets."""

    constants: ProductConstants
    shares: Mapping[str, float]
    limit: PowerLimit


def samples(measurements: Measurements, has_harness: bool) -> list[Sample]:
    """Measurements by device and unit. A harness with host overhead shows it in its shortest times."""
    units = np.array([unit_of(work.dtype) for work in measurements.works])
    parts = []
    for name in measurements.devices:
        target = device(name)
        for unit in sorted(set(units.tolist())):
            rows = np.flatnonzero((measurements.device_ids == name) & (units == unit))
            if len(rows):
                seconds = measurements.seconds[rows]
                floor = _floors(seconds, measurements.labels[rows]) if has_harness else np.zeros(len(rows))
                chosen = np.zeros(len(measurements), bool)
                chosen[rows] = True
                work = products(measurements.where(chosen).table, target)
                parts.append(Sample(measurements.source, target, unit, work, floor, seconds, rows))
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
    large = part.work.bytes > part.device.sheet.number("l2_bytes")
    return np.asarray(large | (part.work.flop / part.work.peak > moving))


def least_seconds(part: Sample) -> Floats:
    """The roofline of a sample's works."""
    work, bandwidth = part.work, part.device.memory_bytes_per_second
    return np.asarray(np.maximum(work.flop / work.peak, work.bytes / bandwidth))


def constants(x: Floats, start_cycles: float) -> ProductConstants:
    """Constants from the free numbers of the fit."""
    k_start, rounding, split, cache = x[2 * _COUNT : 2 * _COUNT + 4].tolist()
    return ProductConstants(
        start_cycles=start_cycles,
        tile_efficiency=tuple(np.minimum(1.0, np.exp(x[:_COUNT])).tolist()),
        plain_efficiency=tuple(np.minimum(1.0, np.exp(x[_COUNT : 2 * _COUNT])).tolist()),
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
    fitted = [row for row in streaming.calibration().shares if device(row.device_id).family != target.family]
    return nearest_share(target, (*published(), *fitted))


def shown(part: Sample, known: ProductConstants, share: float) -> Floats:
    """What the stopwatch would show for the works of a sample."""
    return part.show(modelled(part, known, share))


def fit(parts: Sequence[Sample], start_cycles: float, extra: Sequence[Sample] = ()) -> ProductFit:
    """Constants and shares of `parts`, which are of one unit; of `extra` parts only the share is fitted."""
    kept = [thinned(part.at(is_cold(part))) for part in parts]

    def residuals(x: Floats) -> Floats:
        known = constants(x, start_cycles)
        off = [
            (np.log(shown(part, known, float(np.exp(log_share)))) - np.log(part.seconds))
            * np.sqrt(ROWS_PER_DEVICE / len(part.seconds))
            for part, log_share in zip(kept, x[len(_START) :], strict=True)
        ]
        held = [_PULL * (x[: len(_START)] - _START), _SHARE_PULL * (x[len(_START) :] - _LIKELY_SHARE)]
        return np.concatenate([*off, *held])

    with np.errstate(divide="ignore", invalid="ignore"):  # a step too far, which the search takes back
        x = minimise(residuals, np.concatenate([_START, np.full(len(kept), _LIKELY_SHARE)]), evaluations=20)
    known = constants(x, start_cycles)
    shares = {part.device.id: float(np.exp(s)) for part, s in zip(kept, x[len(_START) :], strict=True)}
    for part in extra:
        if part.device.id not in shares:
            shares[part.device.id] = share_of(part, known)
    return ProductFit(known, shares, power_limit(shares, parts[0].unit))


def share_of(part: Sample, known: ProductConstants) -> float:
    """The share of peak at which given constants fit a sample best."""
    kept = thinned(part.at(is_cold(part)))
    tried = np.exp(np.linspace(np.log(0.1), np.log(1.3), 60))
    off = [np.mean(np.abs(np.log(shown(kept, known, float(s)) / kept.seconds))) for s in tried]
    return float(tried[int(np.argmin(off))])


def power_limit(shares: Mapping[str, float], unit: str) -> PowerLimit:
    """The limit of power that fits the shares of devices best; three numbers, held near a likely start.

    Maxwell boards and AMD's of 2017 ran libraries that left far more unused than power did: left out.
    """
    known = {name: share for name, share in shares.items() if device(name).generation not in _IMMATURE}
    logs = np.log(np.array(list(known.values())))
    middle = float(np.log(np.median([headroom(device(name), unit) for name in known]) / 1.5))
    start = np.array([-0.05, middle, _DECLINE])

    def limit(x: Floats) -> PowerLimit:
        return PowerLimit(float(np.exp(x[0])), float(np.exp(x[1])), float(x[2]))

    def residuals(x: Floats) -> Floats:
        predicted = np.log(np.array([limit(x).share(device(name), unit) for name in known]))
        return np.concatenate([predicted - logs, (x - start) * [0.3, 0.2, 1.0]])

    return limit(minimise(residuals, start, scale=0.2))


def fit_trees(part: Sample, modelled: Floats) -> Forest:
    """Trees of log(measured / modelled), a measurement counting by how much of it is kernel, not harness.

    Kernels that the harness hides carry no information; they count a little for the model as it is.
    """
    import lightgbm

    kernel = part.seconds - BEFORE_KERNEL * part.floor_seconds
    is_hidden = kernel < _VISIBLE * (1 - BEFORE_KERNEL) * part.floor_seconds
    kernel = np.where(is_hidden, modelled, kernel)
    departure = np.clip(np.log(kernel / modelled), -BOUND, BOUND)
    weight = np.where(is_hidden, _HIDDEN_WEIGHT, kernel / part.seconds)
    inputs = features(part.work, part.device, modelled)
    data = lightgbm.Dataset(inputs, departure, weight=weight)
    return from_lightgbm(lightgbm.train(_SETTINGS, data, _ROUNDS).dump_model())
