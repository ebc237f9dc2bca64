"""Corrections of the product model for the kernels that libraries choose on one compute capability.

Libraries choose among kernels by heuristics that differ by compute capability. Where products were measured,
boosted trees predict the logarithm of measured over modelled time from ratios of the product to the device:
time in tiles of each size, traffic, depth, divisibility of dimensions. Layers and plain products use
different kernels and have separate trees. Devices of the same compute capability run the same kernels and
share the correction; other devices have none.

Trees are arrays, evaluated with numpy and stored without pickle. A forest predicts the sum of one leaf per
tree. At a node a row goes left if feature <= threshold. Leaves are stored in the same arrays as nodes and are
their own children, so that every row takes `depth` steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretrain.facts.calibrations import calibration_arrays
from foretrain.facts.devices import Device
from foretrain.prediction.operators.listing import Floats
from foretrain.prediction.operators.products import TILES, Products
from foretrain.prediction.operators.products import kernels_of as kernels_of

ARRAYS = ("feature", "threshold", "left", "right", "value", "roots")


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees in arrays, nodes of all trees one after another; `roots` holds the first node of each."""

    feature: NDArray[np.int16]
    threshold: NDArray[np.float32]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: NDArray[np.float32]
    roots: NDArray[np.int32]
    depth: int

    def predict(self, features: Floats) -> Floats:
        """The sum over trees for each row of `features` (rows x features)."""
        known = features.astype(np.float32)
        rows = np.arange(len(known))[:, None]
        at = np.broadcast_to(self.roots, (len(known), len(self.roots)))
        for _ in range(self.depth):
            goes_left = known[rows, self.feature[at]] <= self.threshold[at]
            at = np.where(goes_left, self.left[at], self.right[at])
        return np.asarray(self.value[at].sum(axis=1, dtype=float))

    def arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """The arrays to store, by name."""
        return {f"{prefix}{name}": getattr(self, name) for name in (*ARRAYS, "depth")}


def stored(arrays: Mapping[str, NDArray[Any]], prefix: str) -> Forest:
    """A forest from arrays stored by `Forest.arrays`."""
    parts = {name: arrays[prefix + name] for name in ARRAYS}
    return Forest(**parts, depth=int(arrays[prefix + "depth"]))


def from_lightgbm(dump: Mapping[str, Any]) -> Forest:
    """A forest from `lightgbm.Booster.dump_model()`; only numeric splits without missing values."""
    columns: dict[str, list[float]] = {name: [] for name in ARRAYS}
    depth = 0
    for tree in dump["tree_info"]:
        columns["roots"].append(len(columns["value"]))
        depth = max(depth, _add(tree["tree_structure"], columns))
    return Forest(
        feature=np.array(columns["feature"], np.int16),
        threshold=np.array(columns["threshold"], np.float32),
        left=np.array(columns["left"], np.int32),
        right=np.array(columns["right"], np.int32),
        value=np.array(columns["value"], np.float32),
        roots=np.array(columns["roots"], np.int32),
        depth=depth,
    )


def _add(node: Mapping[str, Any], columns: dict[str, list[float]]) -> int:
    """Append a node and its descendants; returns the depth below it."""
    here = len(columns["value"])
    is_leaf = "leaf_value" in node
    columns["feature"].append(0 if is_leaf else node["split_feature"])
    columns["threshold"].append(0.0 if is_leaf else node["threshold"])
    columns["value"].append(node["leaf_value"] if is_leaf else 0.0)
    columns["left"].append(here)
    columns["right"].append(here)
    if is_leaf:
        return 0
    if node["decision_type"] != "<=":
        raise ValueError(
            f"cannot store a split by {node['decision_type']!r}; only numeric splits are supported"
        )
    columns["left"][here] = len(columns["value"])
    below = _add(node["left_child"], columns)
    columns["right"][here] = len(columns["value"])
    return 1 + max(below, _add(node["right_child"], columns))


FILE = "products_trees.npz"
BOUND = 1.5
"""Bound of the logarithm of a correction."""
_WIDEST = 32


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


def correction(forest: Forest, work: Products, device: Device, modelled: Floats) -> Floats:
    """Measured over modelled seconds, as a forest predicts it."""
    departure = forest.predict(features(work, device, modelled))
    return np.asarray(np.exp(np.clip(departure, -BOUND, BOUND)))


def apply(forest: Forest, work: Products, device: Device, modelled: Floats) -> Floats:
    """Modelled seconds times the prediction of a forest."""
    return modelled * correction(forest, work, device, modelled)


@cache
def forests() -> Mapping[str, Forest]:
    """The shipped corrections, by `key`."""
    loaded = calibration_arrays(FILE)
    prefixes = sorted({name.rsplit("/", 1)[0] for name in loaded})
    return {prefix: stored(loaded, prefix + "/") for prefix in prefixes}
