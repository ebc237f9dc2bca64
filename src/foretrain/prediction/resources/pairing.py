"""Two jobs on one device and one link: how much each slows the other down, from their cycles.

Each job repeats its cycle. While both use a resource, its capacity is divided by max-min fairness: a job gets
all it needs if that is at most half, or what the other leaves. A job is as fast as its scarcest resource:
bursts of one in the gaps of the other cost nothing.

    speed of a job = min over resources of min(1, share it gets / share it needs)
    slowdown       = time of its cycles together / time of them alone

Kernels of two processes take turns on a GPU (no MPS), so computing is a resource of capacity 1, as are the
bandwidth of its memory and each direction of the link. What several jobs cost in caches and switches between
them is not modelled: real slowdowns are larger.

What `pair` answers: the slowdowns of two jobs that share their hardware, and a verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretrain.answers import Answer
from foretrain.encoding import encode
from foretrain.errors import InvalidRequest
from foretrain.prediction.resources.consumption import NAMES, Consumption, timeline_consumption
from foretrain.prediction.resources.worker_cycle import WorkerCycle
from foretrain.prediction.scenario import Evaluation, Scenario
from foretrain.store.runs import Floats, Resource
from foretrain.units import format_bytes

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


WORTHWHILE = 1.05
"""Combined speed above which sharing is advised: below it the gain is within what sharing itself costs."""


@dataclass(frozen=True)
class PairAnswer(Answer):
    """Two jobs on the same hardware. Without enough memory for both, they cannot share it."""

    jobs: tuple[Consumption, Consumption]
    pairing: Pairing
    memory_bytes: float
    capacity_bytes: float

    @property
    def fits(self) -> bool:
        """Whether the memory of a device holds both."""
        return self.memory_bytes <= self.capacity_bytes

    @property
    def is_advised(self) -> bool:
        """Whether sharing finishes both sooner than one after the other."""
        return self.fits and self.pairing.combined_speed >= WORTHWHILE

    @property
    def verdict(self) -> str:
        """The answer in one sentence."""
        if not self.fits:
            needed, capacity = format_bytes(self.memory_bytes), format_bytes(self.capacity_bytes)
            return f"do not share: both together need {needed} of {capacity} memory"
        speed, busiest = self.pairing.combined_speed, NAMES[self.pairing.busiest].replace("_", " ")
        together = f"together they do {speed:.2f} times the work of one after the other"
        if self.is_advised:
            return f"share: {together}"
        return f"do not share: {together}; both need the {busiest} ({self.pairing.busiest_share:.0%} of it)"

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data."""
        jobs = [
            {
                "model": job.workload.source.name,
                "batch": job.batch,
                "cycle_seconds": job.cycle_seconds,
                "slowdown": slowdown,
                "least_slowdown": least,
                "most_slowdown": most,
                "resources": job.to_dict()["resources"],
            }
            for job, slowdown, least, most in zip(
                self.jobs, self.pairing.slowdowns, self.pairing.least, self.pairing.most, strict=True
            )
        ]
        return {
            "hardware": {"name": self.jobs[0].cluster.name, "strategy": self.jobs[0].strategy},
            "jobs": jobs,
            "combined_speed": self.pairing.combined_speed,
            "busiest": {"resource": NAMES[self.pairing.busiest], "share": self.pairing.busiest_share},
            "memory": encode(
                {"bytes": self.memory_bytes, "capacity_bytes": self.capacity_bytes, "fits": self.fits}
            ),
            "share": self.is_advised,
            "verdict": self.verdict,
        }

    def summary(self) -> tuple[tuple[str, str], ...]:
        """Slowdowns and verdict."""
        slowdowns = zip(self.jobs, self.pairing.slowdowns, strict=True)
        return (
            ("hardware", f"{self.jobs[0].cluster.name}, {self.jobs[0].strategy}"),
            *((job.workload.source.name, f"{slowdown:.2f} times as long") for job, slowdown in slowdowns),
            ("verdict", self.verdict),
        )


def pair_answer(first: tuple[Scenario, Evaluation], second: tuple[Scenario, Evaluation]) -> PairAnswer:
    """Two evaluated jobs on the same hardware."""
    jobs = [
        timeline_consumption(scenario, pace, "bursts of the timeline") for scenario, pace in (first, second)
    ]
    paces = first[1], second[1]
    device = paces[0].context.environment.device
    if device.is_cpu:
        raise InvalidRequest(
            f"pairing is for GPUs; {device.id} is a CPU, whose cores jobs divide as they like"
        )
    return PairAnswer(
        jobs=(jobs[0], jobs[1]),
        pairing=pairing(jobs[0].cycle, jobs[1].cycle, _link_capacities(paces[0])),
        memory_bytes=sum(each.memory.bytes for each in paces),
        capacity_bytes=paces[0].memory.capacity_bytes,
    )


def _link_capacities(pace: Evaluation) -> dict[Resource, float]:
    """Bytes/s of the link that carries the exchanges, in each direction."""
    network = pace.context.environment.network
    tier = network.inter or network.intra
    if tier is None or not pace.step.traffic:
        return {}
    rate = tier.bytes_per_second_alone
    return {Resource.TRANSMIT: rate, Resource.RECEIVE: rate}
