"""The largest batch that fits into the memory of a device."""

from __future__ import annotations

from collections.abc import Callable

from foretrain.errors import InvalidRequest
from foretrain.facts.devices import Device
from foretrain.prediction.memory.estimate import estimate_memory
from foretrain.prediction.strategies.memory_options import MemoryOptions
from foretrain.workloads.graph import Graph

GraphAt = Callable[[int], Graph]
"""The graph of a step at a batch size."""

LARGEST = 1 << 20
"""The largest batch that is tried."""


def largest_batch(
    graph_at: GraphAt,
    device: Device,
    options: MemoryOptions | None = None,
    most: int = LARGEST,
    start: int = 1,
) -> int:
    """The largest batch per device that fits, by doubling and bisection; 0 if one sample does not fit.

    The search begins at `start`: a model with batch norm may not take a batch of one.
    """
    if most < 1:
        raise InvalidRequest(f"the largest batch to try must be at least 1, got {most}")

    def fits(batch: int) -> bool:
        return estimate_memory(graph_at(batch), device, options).fits

    low, high = 0, min(start, most)
    while high <= most and fits(high):
        low, high = high, high * 2
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
