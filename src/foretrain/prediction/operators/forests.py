"""Boosted trees as arrays, evaluated with numpy and stored without pickle.

A forest predicts the sum of one leaf per tree. At a node a row goes left if feature <= threshold. Leaves are
stored in the same arrays as nodes and are their own children, so that every row takes `depth` steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretrain.facts.calibrations import calibration_array_names, calibration_arrays
from foretrain.prediction.operators.listing import Floats

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


def load_forest(arrays: Mapping[str, NDArray[Any]]) -> Forest:
    """A forest from arrays stored by `Forest.arrays`, without their prefix."""
    return Forest(**{name: arrays[name] for name in ARRAYS}, depth=int(arrays["depth"]))


class ForestFile(Mapping[str, Forest]):
    """The forests of a shipped file, by the prefix of their arrays; each is read when it is first used.

    Only keys that begin with one of `starts` are in it; all by default.
    """

    def __init__(self, name: str, starts: tuple[str, ...] = ("",)) -> None:
        self._name, self._starts = name, starts
        self._read: dict[str, Forest] = {}

    def __getitem__(self, key: str) -> Forest:
        if key not in self._read:
            if key not in self._keys:
                raise KeyError(key)
            self._read[key] = load_forest(calibration_arrays(self._name, f"{key}/"))
        return self._read[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    @cached_property
    def _keys(self) -> tuple[str, ...]:
        keys = {name.rpartition("/")[0] for name in calibration_array_names(self._name)}
        return tuple(sorted(key for key in keys if key.startswith(self._starts)))
