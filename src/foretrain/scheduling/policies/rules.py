"""First-principles rules: waiting jobs in some order, no preemption, the performance model picks the node.

Jobs start in order of submission (FIFO), deadline (EDF) or priority. Each takes the cheapest configuration
that meets its deadline, or the fastest if none does: alone on its nodes as in the published comparison, or
sharing nodes with others (`packed`).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from foretrain.scheduling.decision import Decision
from foretrain.scheduling.loop import Policy
from foretrain.scheduling.options import (
    JobOption,
    in_time,
    may_go_on,
    options_of,
    slack_seconds,
)
from foretrain.scheduling.policies._packing import NodePacking
from foretrain.scheduling.problem import Market
from foretrain.scheduling.state import JobState, Running, State

Order = Callable[[JobState], tuple[float, ...]]
"""The key of a waiting job; the smallest goes first."""


def by_submission(job: JobState) -> tuple[float, ...]:
    """First in, first out."""
    return (job.job.submit_seconds,)


def by_deadline(job: JobState) -> tuple[float, ...]:
    """Earliest deadline first."""
    return job.job.deadline_seconds, job.job.submit_seconds


def by_priority(job: JobState) -> tuple[float, ...]:
    """Highest priority first, then the highest cost of lateness."""
    return -job.job.priority, -job.job.weight_usd_per_second, job.job.submit_seconds


def one_job_a_node(state: State, order: Order) -> Decision:
    """Running jobs stay; each node that is off takes one waiting job."""
    staying, waiting = _split_jobs(state)
    packing = NodePacking(state, staying)
    for job in _in_order(waiting, order) if packing.free_nodes else ():
        if not packing.free_nodes:
            break
        options = [
            each
            for each in options_of(state, job)
            if packing.can_open(each.configuration.node_type, each.configuration.nodes)
        ]
        option = cheapest_in_time(options, slack_seconds(state, job), alone=True)
        if option is not None:
            packing.place(job.job.name, option.configuration, alone=True)
    return packing.decision()


def sharing_nodes(state: State, order: Order) -> Decision:
    """Running jobs stay; waiting ones take free GPUs of nodes that are on, then nodes that are off.

    A job for which there is no room waits, and later ones may go before it. Nodes are opened with room for
    others, and right-sized at the end as long as other nodes are still off.
    """
    staying, waiting = _split_jobs(state)
    packing = NodePacking(state, staying)
    for job in _in_order(waiting, order) if packing.has_room else ():
        if not packing.has_room:
            break
        options = [each for each in options_of(state, job, roomy=True) if _has_room(packing, each)]
        option = cheapest_in_time(options, slack_seconds(state, job))
        if option is not None:
            packing.place(job.job.name, option.configuration)
    if packing.free_nodes:
        packing.shrink()
    return packing.decision()


def cheapest_in_time(options: Sequence[JobOption], seconds: float, alone: bool = False) -> JobOption | None:
    """The cheapest option that ends within some time, else the fastest; None if there is no option.

    `alone` counts whole nodes.
    """
    good = in_time(options, seconds)
    if good:
        return min(good, key=(lambda each: (each.node_usd, each.seconds)) if alone else _usd_first)
    return min(options, key=lambda each: (each.seconds, each.usd), default=None)


def _usd_first(option: JobOption) -> tuple[float, float]:
    return option.usd, option.seconds


def _has_room(packing: NodePacking, option: JobOption) -> bool:
    configuration = option.configuration
    if packing.can_open(configuration.node_type, configuration.nodes):
        return True
    return configuration.nodes == 1 and packing.joins(configuration)


def _split_jobs(state: State) -> tuple[dict[str, Running], list[JobState]]:
    """Running jobs that stay where they are, and all others."""
    staying: dict[str, Running] = {}
    waiting: list[JobState] = []
    has_caps = bool(state.caps.user_usd) or math.isfinite(state.caps.month_usd)
    is_limited = has_caps or any(each.market is Market.SPOT for each in state.fleet.types.values())
    for name, job in state.jobs.items():
        is_free = not is_limited and math.isinf(job.job.budget_usd)
        if job.running is not None and (is_free or may_go_on(state, job)):
            staying[name] = job.running
        else:
            waiting.append(job)
    return staying, waiting


def _in_order(jobs: Sequence[JobState], order: Order) -> Iterator[JobState]:
    """The first job first; they are sorted only as far as they are looked at."""
    heap = [(order(job), position) for position, job in enumerate(jobs)]
    heapq.heapify(heap)
    while heap:
        yield jobs[heapq.heappop(heap)[1]]


@dataclass(frozen=True)
class Fifo(Policy):
    """Jobs in order of submission, each on the cheapest configuration that meets its deadline."""

    name = "fifo"
    summary = "First in, first out; one job per node, no preemption."

    def decide(self, state: State) -> Decision:
        """Running jobs stay; waiting ones start in order while there is room."""
        return one_job_a_node(state, by_submission)


@dataclass(frozen=True)
class FifoPacked(Policy):
    """Jobs in order of submission, each on the cheapest configuration that meets its deadline."""

    name = "fifo-packed"
    summary = "First in, first out; jobs share nodes, no preemption."

    def decide(self, state: State) -> Decision:
        """Running jobs stay; waiting ones start in order while there is room."""
        return sharing_nodes(state, by_submission)


@dataclass(frozen=True)
class Edf(Policy):
    """Jobs in order of their deadlines, each on the cheapest configuration that meets its deadline."""

    name = "edf"
    summary = "Earliest deadline first; one job per node, no preemption."

    def decide(self, state: State) -> Decision:
        """Running jobs stay; waiting ones start in order while there is room."""
        return one_job_a_node(state, by_deadline)


@dataclass(frozen=True)
class EdfPacked(Policy):
    """Jobs in order of their deadlines, each on the cheapest configuration that meets its deadline."""

    name = "edf-packed"
    summary = "Earliest deadline first; jobs share nodes, no preemption."

    def decide(self, state: State) -> Decision:
        """Running jobs stay; waiting ones start in order while there is room."""
        return sharing_nodes(state, by_deadline)


@dataclass(frozen=True)
class Priority(Policy):
    """In order of priority, then of the cost of lateness; each on the cheapest configuration in time."""

    name = "priority"
    summary = "Highest priority first; one job per node, no preemption."

    def decide(self, state: State) -> Decision:
        """Running jobs stay; waiting ones start in order while there is room."""
        return one_job_a_node(state, by_priority)


@dataclass(frozen=True)
class PriorityPacked(Policy):
    """In order of priority, then of the cost of lateness; each on the cheapest configuration in time."""

    name = "priority-packed"
    summary = "Highest priority first; jobs share nodes, no preemption."

    def decide(self, state: State) -> Decision:
        """Running jobs stay; waiting ones start in order while there is room."""
        return sharing_nodes(state, by_priority)
