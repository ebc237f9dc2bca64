"""What `pair` answers: the slowdowns of two jobs that share their hardware, and a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from foretrain.answers import Answer
from foretrain.encoding import encode
from foretrain.errors import InvalidRequest
from foretrain.prediction.evaluation import Evaluation
from foretrain.prediction.resources.consumption import NAMES, Consumption, timeline_consumption
from foretrain.prediction.resources.pairing import Pairing, pairing
from foretrain.prediction.scenario import Scenario
from foretrain.store.runs import Resource
from foretrain.units import format_bytes

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
    if device.kind == "cpu":
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
