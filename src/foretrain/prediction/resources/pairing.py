"""Two jobs on one device and one link: how much each slows the other down, from their cycles.

Each job repeats its cycle. While both use a resource, its capacity is divided by max-min fairness: a job gets
all it needs if that is at most half, or what the other leaves. A job is as fast as its scarcest resource:
bursts of one in the gaps of the other cost nothing.

    speed of a job = min over resources of min(1, share it gets / share it needs)
    slowdown       = time of its cycles together / time of them alone

Kernels of two processes take turns on a GPU (no MPS), so computing is a resource of capacity 1, as are the
bandwidth of its memory and each direction of the link. What several jobs cost in caches and switches between
them is not modelled: real slowdowns are larger.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from foretrain.prediction.resources.worker_cycle import WorkerCycle
from foretrain.store.runs import Floats, Resource

_PARTS = 200
"""Equal parts of a cycle in which demands are constant."""
_CYCLES = 12
"""Cycles of the longer job that are simulated from each start."""
_STARTS = 5
"""Phases of the second job, against the first, at the start."""
_SHARED = (Resource.GPU, Resource.GPU_MEMORY_BUSY, Resource.CPU, Resource.TRANSMIT, Resource.RECEIVE)


@dataclass(frozen=True)
class Pairing:
    """Slowdowns of two jobs that share, averaged over how their cycles may start.

    `combined_speed` is the sum of their speeds: 1 is what one after the other would do, 2 is no disturbance.
    `busiest` is the resource that both together need most, as a share of its capacity.
    """

    slowdowns: tuple[float, float]
    least: tuple[float, float]
    most: tuple[float, float]
    busiest: Resource
    busiest_share: float

    @property
    def combined_speed(self) -> float:
        """Work done together against that of a single job on its own."""
        return sum(1 / each for each in self.slowdowns)


def pairing(
    first: WorkerCycle, second: WorkerCycle, capacities: Mapping[Resource, float] | None = None
) -> Pairing:
    """Two jobs that share all resources; `capacities` are those of the link, and of a CPU in cores."""
    known = {Resource.GPU: 1.0, Resource.GPU_MEMORY_BUSY: 1.0, **(capacities or {})}
    shared = [resource for resource in _SHARED if resource in known]
    demands = [_demands(cycle, shared, known) for cycle in (first, second)]
    parts = [cycle.period_seconds / _PARTS for cycle in (first, second)]
    span = _CYCLES * max(first.period_seconds, second.period_seconds)
    runs = np.array([_slowdowns(demands, parts, start * _PARTS // _STARTS, span) for start in range(_STARTS)])
    together = sum(each.mean(axis=1) for each in demands)
    place = int(np.argmax(together))
    mean, least, most = runs.mean(axis=0), runs.min(axis=0), runs.max(axis=0)
    return Pairing(
        slowdowns=(float(mean[0]), float(mean[1])),
        least=(float(least[0]), float(least[1])),
        most=(float(most[0]), float(most[1])),
        busiest=shared[place],
        busiest_share=float(np.asarray(together)[place]),
    )


def _demands(cycle: WorkerCycle, shared: list[Resource], capacities: Mapping[Resource, float]) -> Floats:
    """Shares of the capacities that a job needs: a row for each resource, a column for each part."""
    instants = np.linspace(0.0, cycle.period_seconds, _PARTS + 1)
    # the integral is periodic: the last instant is just before the end of the period
    instants[-1] = np.nextafter(cycle.period_seconds, 0.0)
    rows = [
        np.diff(cycle.signals[resource].amounts(instants)) * _PARTS / cycle.period_seconds
        / capacities[resource]
        if resource in cycle.signals
        else np.zeros(_PARTS)
        for resource in shared
    ]  # fmt: skip
    return np.clip(np.array(rows), 0.0, 1.0)


def _slowdowns(demands: list[Floats], parts: list[float], start: int, span: float) -> tuple[float, float]:
    """Both jobs from one start: the second begins at part `start` of its cycle."""
    speeds = _speeds(demands[0], demands[1])
    places, left, done = [0, start % _PARTS], list(parts), [0.0, 0.0]
    now = 0.0
    while now < span:
        speed = speeds[0][places[0], places[1]], speeds[1][places[0], places[1]]
        step = min(left[job] / speed[job] for job in (0, 1))
        now += step
        for job in (0, 1):
            done[job] += step * speed[job]
            left[job] -= step * speed[job]
            if left[job] <= 1e-9 * parts[job]:
                places[job], left[job] = (places[job] + 1) % _PARTS, parts[job]
    return now / done[0], now / done[1]


def _speeds(first: Floats, second: Floats) -> tuple[Floats, Floats]:
    """The speeds of both jobs for each pair of parts."""
    one, other = first[:, :, None], second[:, None, :]
    return _speed(one, other), _speed(other, one)


def _speed(mine: Floats, others: Floats) -> Floats:
    """min over resources of what max-min fairness leaves a job, as a share of what it needs."""
    share = np.maximum(1.0 - others, 0.5)
    need = np.broadcast_to(mine, np.broadcast_shapes(mine.shape, others.shape))
    with np.errstate(divide="ignore", invalid="ignore"):
        speed = np.where(need > share, share / need, 1.0)
    fastest: Floats = speed.min(axis=0)
    return fastest
