"""What the libraries of one compute capability do differently from the model of products.

A library chooses among kernels by rules of its own, which differ by compute capability. Where products were
measured, boosted trees tell the logarithm of measured over modelled time from ratios of the product to the
device: its time in tiles of each size, its traffic, its depth, how its dimensions divide. Layers and
plain products run other kernels and have trees of their own. Devices of the same compute capability run
the same kernels and share the correction; others have none.
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
"""The largest correction believed: e to this power, either way."""
_WIDEST = 32


def kernels_of(device: Device) -> str:
    """What names the kernels a device runs: its compute capability; its own id where that is unknown."""
    return device.sheet.text("compute_capability") if device.sheet.has("compute_capability") else device.id


def features(work: Products, device: Device, modelled: Floats) -> Floats:
    """What the trees look at, a row per product."""
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
    """The name of the correction of one unit and sort of product on the kernels of a device."""
    return f"{unit}:{kernels_of(device)}:{'plain' if is_plain else 'layer'}"


def apply(forest: Forest, work: Products, device: Device, modelled: Floats) -> Floats:
    """Modelled seconds times what a forest says of them."""
    departure = forest.predict(features(work, device, modelled))
    return np.asarray(modelled * np.exp(np.clip(departure, -BOUND, BOUND)))


@cache
def forests() -> Mapping[str, Forest]:
    """The shipped corrections, by `key`."""
    with (data_root() / "calibrations" / FILE).open("rb") as file, np.load(file) as arrays:
        loaded = {name: arrays[name] for name in arrays.files}
    prefixes = sorted({name.rsplit("/", 1)[0] for name in loaded})
    return {prefix: stored(loaded, prefix + "/") for prefix in prefixes}
