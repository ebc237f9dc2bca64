"""What a policy sees at an event: time, active jobs with the work left of each, and nodes that are on.

A state is a snapshot that shares unchanged parts with the one before, so that it costs little even with many
jobs. Policies only read it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from foretrain.scheduling.problem import Caps, Configuration, Fleet, Market, NodeType, SubmittedJob
from foretrain.units import DAY

MONTH = 30 * DAY


@dataclass(frozen=True, slots=True)
class Running:
    """Where a job runs: its nodes, its configuration, and since when.

    It progresses from `progress_from` on, after the start of its node and its own restart.
    """

    nodes: tuple[int, ...]
    configuration: Configuration
    started_seconds: float
    progress_from: float


@dataclass(frozen=True, slots=True)
class JobState:
    """An active job. `work_left` (a share of the job) was counted at `counted_at`.

    `pace` is the observed over the predicted time of its steps, 1 until it has run. `spent_usd` is its share
    of the nodes it ran on.
    """

    job: SubmittedJob
    work_left: float = 1.0
    counted_at: float = 0.0
    running: Running | None = None
    pace: float = 1.0
    spent_usd: float = 0.0
    run_seconds: float = 0.0
    starts: int = 0

    def left(self, now: float) -> float:
        """The share of its work that is left at `now`."""
        if self.running is None:
            return self.work_left
        worked = now - max(self.counted_at, self.running.progress_from)
        if worked <= 0:
            return self.work_left
        return max(0.0, self.work_left - worked / self.full_seconds(self.running.configuration))

    def full_seconds(self, configuration: Configuration) -> float:
        """The predicted time of the whole job on a configuration, at the pace seen so far."""
        return self.job.seconds[configuration] * self.pace

    def overhead_seconds(self, configuration: Configuration, same_node: bool = False) -> float:
        """Time without progress if the job is (re)started on a configuration now."""
        if self.starts == 0:
            return self.job.switching.start_seconds
        if self.running is not None and self.running.configuration == configuration and same_node:
            return 0.0
        switching = self.job.switching
        moving = 0.0 if same_node else switching.migration_seconds
        return switching.start_seconds + switching.checkpoint_seconds + switching.restart_seconds + moving

    def seconds_left(self, configuration: Configuration, now: float) -> float:
        """Time to the end on a configuration from now on: the present one goes on, any other is started."""
        work = self.left(now) * self.full_seconds(configuration)
        if self.running is not None and self.running.configuration == configuration:
            return work + max(0.0, self.running.progress_from - now)
        return work + self.overhead_seconds(configuration)

    def may_stop(self, now: float) -> bool:
        """Whether the job may be stopped, moved or resized now."""
        if self.running is None:
            return True
        switching = self.job.switching
        if not switching.movable:
            return False
        return now >= self.running.started_seconds + switching.minimum_run_seconds - 1e-9


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node that is on: its type, since when, and the GPUs each job uses on it.

    It is empty right after its last job stopped; unless the next decision uses it, it is switched off then.
    """

    number: int
    node_type: str
    on_since: float
    shares: tuple[tuple[str, int], ...]

    @property
    def used_gpus(self) -> int:
        """GPUs in use."""
        return sum(gpus for _, gpus in self.shares)


@dataclass(frozen=True)
class State:
    """A snapshot at `now`. `fleet` carries the present prices; `lost` are nodes that failed.

    `jobs` holds every job that is submitted, unfinished and able to run somewhere. `spent_by_user` and
    `spent_this_month` are compared with the caps.
    """

    now: float
    fleet: Fleet
    jobs: Mapping[str, JobState]
    nodes: Mapping[int, NodeState]
    lost: frozenset[int] = frozenset()
    caps: Caps = field(default_factory=Caps)
    spent_by_user: Mapping[str, float] = field(default_factory=dict)
    spent_this_month: float = 0.0

    @cached_property
    def fixed(self) -> Mapping[str, Running]:
        """Jobs that may not be stopped, moved or resized now, with where they run."""
        return {
            name: job.running
            for name, job in self.jobs.items()
            if job.running is not None
            and (job.job.switching.minimum_run_seconds > 0 or not job.job.switching.movable)
            and not job.may_stop(self.now)
        }

    def configurations(self, state: JobState) -> tuple[Configuration, ...]:
        """The configurations a job may use now, given the fleet, budgets and the risk of spot nodes.

        A job that may not be stopped keeps its present one. Empty if the job has to wait (for a repair, or
        for the next month).
        """
        if state.running is not None and not state.may_stop(self.now):
            return (state.running.configuration,)
        if self.is_capped(state.job):
            return ()
        return tuple(each for each in state.job.seconds if self._admits(state, each))

    def is_capped(self, job: SubmittedJob) -> bool:
        """Whether the caps of its user or of the month leave nothing to spend on a job."""
        spent = self.spent_by_user.get(job.user, 0.0)
        return (
            spent >= self.caps.user_usd.get(job.user, math.inf)
            or self.spent_this_month >= self.caps.month_usd
        )

    def _admits(self, state: JobState, configuration: Configuration) -> bool:
        if not self.has_nodes(configuration):
            return False
        budget = state.job.budget_usd
        if math.isfinite(budget) and state.spent_usd + self.finish_usd(state, configuration) > budget:
            return False
        node_type = self.fleet.types[configuration.node_type]
        return node_type.market is not Market.SPOT or self._spot_is_safe(state, configuration, node_type)

    def has_nodes(self, configuration: Configuration) -> bool:
        """Whether enough nodes of a configuration's type exist that did not fail."""
        node_type = self.fleet.types.get(configuration.node_type)
        if node_type is None or configuration.gpus > node_type.gpus:
            return False
        if configuration.nodes > 1 and configuration.gpus != node_type.gpus:
            return False
        return any(
            configuration.node_type in group.types and configuration.nodes <= self.available(index)
            for index, group in enumerate(self.fleet.groups)
        )

    def available(self, group: int) -> int:
        """Nodes of a group that did not fail."""
        count = self.fleet.groups[group].count
        if not self.lost:
            return count
        return count - sum(node in self.lost for node in self.fleet.nodes_of(group))

    def finish_usd(self, state: JobState, configuration: Configuration) -> float:
        """Cost of the rest of a job on a configuration, if its nodes are shared without idle GPUs."""
        return state.seconds_left(configuration, self.now) * self.usd_per_second(configuration)

    def usd_per_second(self, configuration: Configuration) -> float:
        """The price of the GPUs of a configuration, as a share of their nodes."""
        node_type = self.fleet.types[configuration.node_type]
        return node_type.usd_per_second * configuration.nodes * configuration.gpus / node_type.gpus

    def _spot_is_safe(self, state: JobState, configuration: Configuration, node_type: NodeType) -> bool:
        """Whether an interruption now would still leave time to finish on nodes that are not spot.

        Where the deadline cannot be kept on such nodes any more (or there are none), spot is as good.
        """
        if node_type.interruptions_per_hour == 0:
            return True
        reliable = [
            state.full_seconds(each)
            for each in state.job.seconds
            if self.has_nodes(each) and self.fleet.types[each.node_type].market is not Market.SPOT
        ]
        if not reliable:
            return True
        switching = state.job.switching
        again = switching.restart_seconds + switching.migration_seconds + switching.checkpoint_every_seconds
        slack = state.job.deadline_seconds - self.now - state.left(self.now) * min(reliable)
        return slack < 0 or slack >= again + state.overhead_seconds(configuration)


def month_of(seconds: float) -> int:
    """The number of the 30-day month a time lies in."""
    return int(seconds // MONTH)
