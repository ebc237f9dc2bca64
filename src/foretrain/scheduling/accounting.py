"""What nodes and lateness cost: the ledger every backend keeps, and the answer of `simulate` and `run`.

A node is paid while it is on, idle GPUs included:

    execution = Σ_nodes price · billed seconds        tardiness = Σ_jobs weight · max(0, finish - deadline)

Jobs on a node share its price by the GPUs they use, so idle GPUs are paid by those that run.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from foretrain.answers import Answer
from foretrain.encoding import encode
from foretrain.scheduling.problem import NodeType, SubmittedJob
from foretrain.scheduling.state import NodeState, month_of
from foretrain.units import format_duration, format_money

ON_TIME_SECONDS = 1e-3
"""A job that ends within a millisecond after its deadline is on time: plans end there, but for rounding."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """A node of `gpus` GPUs between two changes: what it held and what it cost. The rows of a Gantt chart."""

    node: int
    node_type: str
    gpus: int
    start_seconds: float
    end_seconds: float
    shares: tuple[tuple[str, int], ...]
    usd: float


class Ledger:
    """What was spent: in all, by job, and by month. Keeps the history of nodes where `keeps_history`."""

    def __init__(self, keeps_history: bool = True) -> None:
        self.usd_by_job: dict[str, float] = defaultdict(float)
        self.gpu_seconds_by_job: dict[str, float] = defaultdict(float)
        self.usd_by_month: dict[int, float] = defaultdict(float)
        self.execution_usd = 0.0
        self.unused_usd = 0.0
        self.node_seconds = 0.0
        self.history: list[Occupancy] = []
        self._keeps_history = keeps_history

    def charge(self, node: NodeState, node_type: NodeType, start: float, end: float) -> None:
        """Charge a node that held the same jobs from `start` to `end`."""
        if end <= start:
            return
        usd = node_type.usd_per_second * (end - start)
        self._pay(node, usd, end)
        self.node_seconds += end - start
        for job, gpus in node.shares:
            self.gpu_seconds_by_job[job] += gpus * (end - start)
        if self._keeps_history:
            self.history.append(
                Occupancy(node.number, node.node_type, node_type.gpus, start, end, node.shares, usd)
            )

    def close(self, node: NodeState, node_type: NodeType, end: float) -> None:
        """Charge what the provider's billing units add when a node is switched off; no job pays for it."""
        used = end - node.on_since
        extra = node_type.usd_per_second * (node_type.billed_seconds(used) - used)
        self.unused_usd += extra
        self.execution_usd += extra
        self.usd_by_month[month_of(end)] += extra

    def _pay(self, node: NodeState, usd: float, end: float) -> None:
        self.execution_usd += usd
        self.usd_by_month[month_of(end)] += usd
        for job, gpus in node.shares:
            self.usd_by_job[job] += usd * gpus / node.used_gpus


class JobStatus(Enum):
    """How a job ended."""

    COMPLETED = "completed"
    REJECTED = "rejected"
    FAILED = "failed"
    UNFINISHED = "unfinished"


@dataclass(frozen=True, kw_only=True)
class JobOutcome:
    """What became of one job; times are None where it never started or ended."""

    job: str
    status: JobStatus
    submit_seconds: float
    deadline_seconds: float
    start_seconds: float | None = None
    finish_seconds: float | None = None
    late_seconds: float = 0.0
    execution_usd: float = 0.0
    tardiness_usd: float = 0.0
    gpu_seconds: float = 0.0
    starts: int = 0
    message: str = ""

    @property
    def usd(self) -> float:
        """Execution and lateness together."""
        return self.execution_usd + self.tardiness_usd


@dataclass(frozen=True, slots=True)
class DecisionTimes:
    """How long decisions took; zeros where none was made."""

    count: int
    p50: float
    p99: float
    max: float


def decision_times(seconds: Sequence[float]) -> DecisionTimes:
    """Quantiles of the time decisions took."""
    if not seconds:
        return DecisionTimes(0, 0.0, 0.0, 0.0)
    ordered = sorted(seconds)
    middle, late = (ordered[math.ceil(share * len(ordered)) - 1] for share in (0.5, 0.99))
    return DecisionTimes(len(ordered), middle, late, ordered[-1])


def outcome_of_completed(
    job: SubmittedJob, start: float, finish: float, ledger: Ledger, starts: int
) -> JobOutcome:
    """The outcome of a job that completed."""
    late = finish - job.deadline_seconds
    late = late if late > ON_TIME_SECONDS else 0.0
    return JobOutcome(
        job=job.name,
        status=JobStatus.COMPLETED,
        submit_seconds=job.submit_seconds,
        deadline_seconds=job.deadline_seconds,
        start_seconds=start,
        finish_seconds=finish,
        late_seconds=late,
        execution_usd=ledger.usd_by_job[job.name],
        tardiness_usd=job.weight_usd_per_second * late,
        gpu_seconds=ledger.gpu_seconds_by_job[job.name],
        starts=starts,
    )


@dataclass(frozen=True, kw_only=True)
class Outcome(Answer):
    """All jobs of a simulation or a real run under one policy, and what they cost.

    `unused_usd` is the part of `execution_usd` that only the provider's billing units add. `history` holds
    what each node did; `bound_usd` a lower bound of the total cost where it was asked for.
    """

    policy: str
    jobs: tuple[JobOutcome, ...]
    execution_usd: float
    unused_usd: float
    decisions: DecisionTimes
    history: tuple[Occupancy, ...] = ()
    bound_usd: float | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def completed(self) -> tuple[JobOutcome, ...]:
        """Jobs that completed."""
        return tuple(each for each in self.jobs if each.finish_seconds is not None)

    @property
    def tardiness_usd(self) -> float:
        """The cost of lateness."""
        return sum(each.tardiness_usd for each in self.jobs)

    @property
    def total_usd(self) -> float:
        """Execution and tardiness."""
        return self.execution_usd + self.tardiness_usd

    @property
    def late_jobs(self) -> int:
        """Jobs that completed after their deadline."""
        return sum(each.late_seconds > 0 for each in self.jobs)

    @property
    def makespan_seconds(self) -> float:
        """From the first submission to the last completion."""
        ends = [each.finish_seconds for each in self.jobs if each.finish_seconds is not None]
        return max(ends) - min(each.submit_seconds for each in self.jobs) if ends else 0.0

    @property
    def mean_completion_seconds(self) -> float:
        """Mean time from submission to completion."""
        return _mean(
            each.finish_seconds - each.submit_seconds for each in self.jobs if each.finish_seconds is not None
        )

    def to_dict(self) -> dict[str, Any]:
        """The contract of `foretrain simulate --json`."""
        return {
            "policy": self.policy,
            "total_usd": self.total_usd,
            "execution_usd": self.execution_usd,
            "unused_usd": self.unused_usd,
            "tardiness_usd": self.tardiness_usd,
            "bound_usd": self.bound_usd,
            "late_jobs": self.late_jobs,
            "makespan_seconds": self.makespan_seconds,
            "mean_completion_seconds": self.mean_completion_seconds,
            "decision_seconds": encode(self.decisions),
            "jobs": [{**encode(each), "usd": each.usd} for each in self.jobs],
            "notes": list(self.notes),
        }

    def summary(self) -> tuple[tuple[str, str], ...]:
        """The main figures."""
        return (
            ("policy", self.policy),
            ("total", format_money(self.total_usd)),
            ("execution", format_money(self.execution_usd)),
            (
                "tardiness",
                f"{format_money(self.tardiness_usd)}, {self.late_jobs} of {len(self.jobs)} jobs late",
            ),
            ("makespan", format_duration(self.makespan_seconds)),
            ("mean completion", format_duration(self.mean_completion_seconds)),
        )


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed) if listed else 0.0


@dataclass(frozen=True)
class Comparison(Answer):
    """The outcomes of policies in the order they were asked for; `bound_usd` is of the problem."""

    outcomes: tuple[Outcome, ...]
    bound_usd: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> Outcome:
        """The outcome that costs least; the first of equal ones."""
        return min(self.outcomes, key=lambda each: each.total_usd)

    def to_dict(self) -> dict[str, Any]:
        """Each outcome as `simulate --json` prints it alone."""
        return {
            "best": self.best.policy,
            "bound_usd": self.bound_usd,
            "outcomes": [each.to_dict() for each in self.outcomes],
            "notes": list(self.notes),
        }

    def summary(self) -> tuple[tuple[str, str], ...]:
        """The cost under each policy."""
        return tuple(
            (each.policy, f"{format_money(each.total_usd)}, {each.late_jobs} jobs late")
            for each in self.outcomes
        )
