"""Activations a framework keeps beyond those of its operators, and how full it can fill a device.

    memory = what tensors occupy + kept · tokens · width · 2 bytes · blocks · in flight / tensor degree

`kept` counts half-precision tensors of a block's width. A run is told to fit where its memory stays below a
limit, which is where runs that were seen divide best into those that ran and those that did not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretrain.prediction.operators.listing import Floats

_SOFT = 0.1


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


def fit(seen: Sequence[tuple[Holding, Holding, float | None]]) -> Held:
    """The constants that tell the memory of runs best.

    Each run is told by what its first and its fullest device hold, and what was measured on the first (None:
    it did not run).
    """
    from scipy.optimize import least_squares  # type: ignore[import-untyped]

    ran = [(first, size) for first, _, size in seen if size is not None]

    def errors(value: Floats) -> Floats:
        told = [first.bytes + value[0] * first.unit_bytes for first, _ in ran]
        off: Floats = np.log(told) - np.log([size for _, size in ran])
        return off

    kept = float(least_squares(errors, [1.0], bounds=([0.0], [100.0]), loss="cauchy", f_scale=_SOFT).x[0])
    told = np.array([fullest.bytes + kept * fullest.unit_bytes for _, fullest, _ in seen])
    did = np.array([size is not None for _, _, size in seen])
    limits = np.unique(told)
    right = np.array([((told <= limit) == did).sum() for limit in limits])
    best = int(right.argmax())
    return Held(kept, float(limits[best : best + 2].mean()))
