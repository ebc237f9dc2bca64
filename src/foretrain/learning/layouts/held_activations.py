"""Activations a framework keeps beyond those of its operators, and how full it can fill a device.

    memory = what tensors occupy + kept · tokens · width · 2 bytes · blocks · in flight / tensor-parallel degree

`kept` counts half-precision tensors of a block's width. A run is told to fit where its memory stays below a
limit, which is where runs that were seen divide best into those that ran and those that did not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_SOFT = 0.1
_STEPS = 200


@dataclass(frozen=True, slots=True)
class Holding:
    """What a run holds: `bytes` of its tensors as predicted, and one block-wide tensor of all it keeps."""

    bytes: float
    unit_bytes: float


@dataclass(frozen=True, slots=True)
class Held:
    """The constants."""

    kept: float
    limit_bytes: float

    def memory(self, holding: Holding) -> float:
        """Bytes in use at the peak."""
        return holding.bytes + self.kept * holding.unit_bytes

    def fits(self, holding: Holding) -> bool:
        """Whether it can be expected to run."""
        return self.memory(holding) <= self.limit_bytes


def fit(seen: Sequence[tuple[Holding, float | None]]) -> Held:
    """The constants that tell the memory of runs best; None: it did not run."""
    from scipy.optimize import least_squares  # type: ignore[import-untyped]

    ran = [(holding, size) for holding, size in seen if size is not None]

    def errors(value: np.ndarray) -> np.ndarray:
        told = [holding.bytes + value[0] * holding.unit_bytes for holding, _ in ran]
        return np.log(told) - np.log([size for _, size in ran])

    kept = float(least_squares(errors, [1.0], bounds=([0.0], [100.0]), loss="cauchy", f_scale=_SOFT).x[0])
    told = np.array([holding.bytes + kept * holding.unit_bytes for holding, _ in seen])
    did = np.array([size is not None for _, size in seen])
    limits = np.linspace(0.5, 1.1, _STEPS) * max(size for _, size in ran)
    right = [int(((told <= limit) == did).sum()) for limit in limits]
    return Held(kept, float(np.median(limits[np.array(right) == max(right)])))
