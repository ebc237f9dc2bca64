"""Configurations in columns, so that a form tells all of them in a few numpy operations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretrain.learning.scaling.timings import Configuration
from foretrain.prediction.operators.listing import Floats


@dataclass(frozen=True, eq=False)
class Columns:
    """Row i of each column belongs to configuration i. `relative_batch` is over the job's reference batch."""

    nodes: Floats
    devices: Floats
    fullest: Floats
    relative_batch: Floats

    def __len__(self) -> int:
        return len(self.nodes)

    def only(self, rows: Sequence[int]) -> Columns:
        """Some of the rows."""
        chosen = list(rows)
        return Columns(
            self.nodes[chosen], self.devices[chosen], self.fullest[chosen], self.relative_batch[chosen]
        )


def columns(configurations: Sequence[Configuration], reference_batch: float) -> Columns:
    """Columns of these configurations."""
    places = [item.placement for item in configurations]
    return Columns(
        np.array([place.nodes for place in places], float),
        np.array([place.devices for place in places], float),
        np.array([place.fullest for place in places], float),
        np.array([item.batch / reference_batch for item in configurations], float),
    )


def reference_batch(configurations: Sequence[Configuration]) -> float:
    """The middle of a job's batch sizes on a scale of ratios: what all shares of a form refer to."""
    batches = [item.batch for item in configurations]
    return math.sqrt(min(batches) * max(batches))
