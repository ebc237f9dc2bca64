"""Corrections of the product model for the kernels that libraries choose on one compute capability.

Libraries choose among kernels by heuristics that differ by compute capability. Where products were measured,
boosted trees predict the logarithm of measured over modelled time from ratios of the product to the device:
time in tiles of each size, traffic, depth, divisibility of dimensions. Layers and plain products use
different kernels and have separate trees. Devices of the same compute capability run the same kernels and
share the correction; other devices have none.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np

from foretrain.facts.devices import Device
from foretrain.facts.sheets import data_root
from foretrain.prediction.operators.listing import Floats
from foretrain.prediction.operators.products import TILES, Products
from foretrain.prediction.operators.trees import Forest, stored

FILE = "products_trees.npz"
BOUND = 1.5
"""Bound of the logarithm of a correction."""
_WIDEST = 32


def kernels_of(device: Device) -> str:
    """An identifier of the kernels of a device: its compute capability, or its id if that is unknown."""
    return device.sheet.text("compute_capability") if device.sheet.has("compute_capability") else device.id


def features(work: Products, device: Device, modelled: Floats) -> Floats:
    """The features of the trees, one row per product."""
    sms, cache_bytes = device.sheet.number("sm_count"), device.sheet.number("l2_bytes")
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


def key(unit: str, device: Device, is_plain: bool) -> str:
    """The key of the correction of a unit and type of product on the kernels of a device."""
    return f"{unit}:{kernels_of(device)}:{'plain' if is_plain else 'layer'}"


def apply(forest: Forest, work: Products, device: Device, modelled: Floats) -> Floats:
    """Modelled seconds times the prediction of a forest."""
    departure = forest.predict(features(work, device, modelled))
    return np.asarray(modelled * np.exp(np.clip(departure, -BOUND, BOUND)))


@cache
def forests() -> Mapping[str, Forest]:
    """The shipped corrections, by `key`."""
    with (data_root() / "calibrations" / FILE).open("rb") as file, np.load(file) as arrays:
        loaded = {name: arrays[name] for name in arrays.files}
    prefixes = sorted({name.rsplit("/", 1)[0] for name in loaded})
    return {prefix: stored(loaded, prefix + "/") for prefix in prefixes}
