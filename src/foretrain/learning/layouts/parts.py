"""The parts of a step on many devices, stage by stage, each of which a framework may take its own time for.

Of one micro-batch: products and other kernels of the blocks, everything outside the blocks, exchanges between
tensor-parallel devices, launches. Of a step: the reduction of gradients and the update.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrain.prediction.operators.listing import Flags, Floats


@dataclass(frozen=True, eq=False)
class StageParts:
    """Seconds of one micro-batch, one entry for each stage of a pipeline; `exchanges` are counted."""

    products: Floats
    others: Floats
    outside: Floats
    exchanging: Floats
    launching: Floats
    exchanges: Floats

    def __len__(self) -> int:
        return len(self.products)


@dataclass(frozen=True, slots=True)
class LayoutParts:
    """A layout with the parts of its step. `reducing` and `updating` are seconds of the fullest stage."""

    stages: StageParts
    micro_batches: int
    tensor: int
    nodes: int
    devices_per_node: int
    replicas: int
    reducing: float
    updating: float

    @property
    def is_tensor_parallel_across_nodes(self) -> bool:
        """Whether tensor-parallel exchanges leave the node."""
        return self.tensor > self.devices_per_node

    @property
    def is_pipeline_across_nodes(self) -> bool:
        """Whether stages of one pipeline live on several nodes."""
        return len(self.stages) > 1 and self.nodes > 1


def summed(values: Floats, stage_of_call: np.ndarray, stages: int, where: Flags) -> Floats:
    """Seconds of some calls by stage; calls of no stage (-1) are left out."""
    chosen = where & (stage_of_call >= 0)
    return np.bincount(stage_of_call[chosen], values[chosen], stages).astype(np.float64)
