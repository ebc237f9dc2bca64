"""K-asynchronous updates: the server takes the first K workers each time, while the others go on.

There is no closed form but for exponential times, since workers that go on have a head start: E[X_(K:n)] is
an upper bound where new takes longer than used (S. Dutta et al., "Slow and Stale Gradients Can Win the Race",
AISTATS 2018). So it is simulated: many replicas side by side, always from the same seed, after a warm-up,
with the standard error over the replicas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from foretrain.prediction.strategies.worker_times import WorkerTimes

_REPLICAS = 64
_GRADIENTS = 300_000
_LEAST_UPDATES = 200


@dataclass(frozen=True)
class Simulated:
    """A mean over replicas."""

    seconds: float
    standard_error: float


@lru_cache(maxsize=256)
def simulated_first_k(
    times: WorkerTimes, k: int, workers: int, busy_seconds: float = 0.0, overhead_seconds: float = 0.0
) -> Simulated:
    """Average time between updates with K of `workers` workers.

    An update keeps the server busy for `busy_seconds`; its K workers start again after it and an overhead.
    """
    generator = np.random.default_rng(0)
    updates = max(_LEAST_UPDATES, math.ceil(_GRADIENTS / (_REPLICAS * k)))
    warm_up = max(updates // 4, math.ceil(4 * workers / k))
    ready = times.drawn(generator, (_REPLICAS, workers))
    free, began = np.zeros(_REPLICAS), np.zeros(_REPLICAS)
    for update in range(warm_up + updates):
        if update == warm_up:
            began = free
        first = np.argpartition(ready, k - 1, axis=1)[:, :k]
        latest = np.take_along_axis(ready, first, axis=1).max(axis=1)
        free = np.maximum(latest, free) + busy_seconds
        again = free[:, None] + overhead_seconds + times.drawn(generator, (_REPLICAS, k))
        np.put_along_axis(ready, first, again, axis=1)
    each = (free - began) / updates
    return Simulated(float(each.mean()), float(each.std(ddof=1) / math.sqrt(_REPLICAS)))
