"""Run a thing many times, all workers equally often, and tell what one takes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
import torch.distributed as dist

WARM_UP = 3
"""Steps before times count: buckets are settled after the first, memory after a few."""


@dataclass(frozen=True)
class Repeated:
    """What one run takes: seconds on the wall (median, lower quartile), processor seconds of this process."""

    seconds: float
    quartile_seconds: float
    processor_seconds: float
    runs: int

    def as_json(self) -> dict[str, float]:
        """As a message."""
        return asdict(self)


def repeat(
    run: Callable[[], object], seconds: float, fewest: int, most: int, warm_up: int = WARM_UP
) -> Repeated:
    """Run it for about so long after a warm-up; the first worker decides for all how often."""
    warm = [_taken(run) for _ in range(warm_up)]
    agreed = torch.tensor([int(min(max(seconds / max(warm[-1], 1e-6), fewest), most))])
    dist.broadcast(agreed, 0)
    count = int(agreed)
    used = time.process_time()
    times = [_taken(run) for _ in range(count)]
    used = (time.process_time() - used) / count
    quartile = statistics.quantiles(times, n=4)[0] if count > 1 else times[0]
    return Repeated(statistics.median(times), quartile, used, count)


def _taken(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
