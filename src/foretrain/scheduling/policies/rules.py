"""First-principles rules: waiting jobs in some order, no preemption, the performance model picks the node.

Jobs start in order of submission (FIFO), deadline (EDF) or priority. Each takes the cheapest configuration
that meets its deadline, or the fastest if none does: alone on its nodes as in the published comparison, or
sharing nodes with others (`packed`).
"""

from __future__ import annotations

import heapq
import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from foretrain.scheduling.loop import Decision, Policy
from foretrain.scheduling.options import (
    JobOption,
    in_time,
    may_go_on,
    options_of,
    slack_seconds,
)
from foretrain.scheduling.packing import Packing
from foretrain.scheduling.problem import Configuration, Market, SubmittedJob
from foretrain.scheduling.state import JobState, Running, State


@dataclass(frozen=True)
class _Queue(Policy):
    """Running jobs stay; waiting ones start in order while there is room. There is no preemption."""

    is_packed: ClassVar[bool] = False

    @abstractmethod
    def order(self, job: SubmittedJob) -> tuple[float, ...]:
        """The key of a waiting job; the smallest goes first."""

    def decide(self, state: State) -> Decision:
        """Each job takes the cheapest configuration in time that there is room for, else the fastest.

        A job for which there is no room waits, and later ones may go before it. Packed, nodes are opened with
        room for others, and right-sized at the end as long as other nodes are still off.
        """
        staying, waiting = _split_jobs(state)
        packing = Packing(state, staying)
        # Sorted only as far as they are looked at: thousands may wait for the few that fit.
        heap = [(self.order(job.job), position) for position, job in enumerate(waiting)]
        heapq.heapify(heap)
        while heap and (packing.has_room if self.is_packed else packing.free_nodes):
            job = waiting[heapq.heappop(heap)[1]]
            options = [
                each
                for each in options_of(state, job, roomy=self.is_packed)
                if self._has_room(packing, each.configuration)
            ]
            option = cheapest_in_time(options, slack_seconds(state, job), alone=not self.is_packed)
            if option is not None:
                packing.place(job.job.name, option.configuration, alone=not self.is_packed)
        if self.is_packed and packing.free_nodes:
            packing.shrink()
        return packing.decision()

    def _has_room(self, packing: Packing, configuration: Configuration) -> bool:
        if packing.can_open(configuration.node_type, configuration.nodes):
            return True
        return self.is_packed and configuration.nodes == 1 and packing.joins(configuration)


def cheapest_in_time(options: Sequence[JobOption], seconds: float, alone: bool = False) -> JobOption | None:
    """The cheapest option that ends within some time, else the fastest; None if there is no option.

    `alone` counts whole nodes.
    """
    good = in_time(options, seconds)
    if good:
        return min(good, key=lambda each: (each.node_usd if alone else each.usd, each.seconds))
    return min(options, key=lambda each: (each.seconds, each.usd), default=None)


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


class Fifo(_Queue):
    """Jobs in order of submission."""

    name = "fifo"
    summary = "First in, first out; one job per node, no preemption."

    def order(self, job: SubmittedJob) -> tuple[float, ...]:
        """First in, first out."""
        return (job.submit_seconds,)


class FifoPacked(Fifo):
    """The same, with nodes that jobs share."""

    name = "fifo-packed"
    summary = "First in, first out; jobs share nodes, no preemption."
    is_packed = True


class Edf(_Queue):
    """Jobs in order of their deadlines."""

    name = "edf"
    summary = "Earliest deadline first; one job per node, no preemption."

    def order(self, job: SubmittedJob) -> tuple[float, ...]:
        """Earliest deadline first."""
        return job.deadline_seconds, job.submit_seconds


class EdfPacked(Edf):
    """The same, with nodes that jobs share."""

    name = "edf-packed"
    summary = "Earliest deadline first; jobs share nodes, no preemption."
    is_packed = True


class Priority(_Queue):
    """Jobs in order of priority, then of the cost of lateness."""

    name = "priority"
    summary = "Highest priority first; one job per node, no preemption."

    def order(self, job: SubmittedJob) -> tuple[float, ...]:
        """Highest priority first, then the highest cost of lateness."""
        return -job.priority, -job.weight_usd_per_second, job.submit_seconds


class PriorityPacked(Priority):
    """The same, with nodes that jobs share."""

    name = "priority-packed"
    summary = "Highest priority first; jobs share nodes, no preemption."
    is_packed = True
