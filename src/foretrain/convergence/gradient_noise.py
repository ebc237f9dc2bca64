"""Gradient noise: how much more a larger batch gets done in a step, from statistics of the gradients.

With |G|² the squared norm of the mean gradient and σ² the variance of a gradient over `reference` samples, a
step over `scale` times as many samples does the work of

    gain = (σ² + |G|²) / (σ² / scale + |G|²)

reference steps (A. Qiao et al., "Pollux", OSDI 2021, eq. 7, after T. Johnson et al., "AdaScale SGD", 2020).
B_crit = reference · σ² / |G|² is the simple noise scale of McCandlish et al., arXiv:1812.06162.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrain.convergence.curves import Floats
from foretrain.errors import InvalidRequest


@dataclass(frozen=True)
class GradientNoise:
    """Statistics of the gradients of batches of `reference` samples."""

    reference: float
    squared_norm: float
    variance: float

    def __post_init__(self) -> None:
        if not (self.reference > 0 and self.squared_norm >= 0 and self.variance >= 0):
            raise InvalidRequest("gradient statistics: batch above 0, squared norm and variance at least 0")
        if self.squared_norm + self.variance == 0:
            raise InvalidRequest("gradient statistics are all 0: nothing is learnt")

    @property
    def critical_batch(self) -> float:
        """B_crit: at this batch half of a perfect gain is left."""
        return self.reference * self.variance / self.squared_norm if self.squared_norm else float("inf")

    def gain(self, batch: float) -> float:
        """Reference steps done by one step at `batch`."""
        scale = batch / self.reference
        return (self.variance + self.squared_norm) / (self.variance / scale + self.squared_norm)

    def efficiency(self, batch: float) -> float:
        """Progress of a sample against one in a reference batch: gain / scale."""
        return self.gain(batch) * self.reference / batch

    def steps(self, batch: float, reference_steps: float) -> float:
        """Steps at `batch` for what takes so many at the reference."""
        return reference_steps / self.gain(batch)


def steps_over_run(progress: Floats, ratios: Floats, reference: float, batch: float, total: float) -> float:
    """Steps at `batch` for `total` reference steps, noise changing on the way.

    `ratios` are σ²/|G|² (of reference batches) at the progress points, of any one run of the task.
    """
    grid = np.linspace(0.0, total, 513)
    noise = np.interp(0.5 * (grid[1:] + grid[:-1]), progress, ratios)
    scale = batch / reference
    gains = (noise + 1) / (noise / scale + 1)
    return float((np.diff(grid) / gains).sum())
