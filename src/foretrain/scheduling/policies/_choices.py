"""What a job may choose from now: admissible configurations, with time and cost of what is left of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from weakref import ref

from foretrain.scheduling.problem import Configuration, Fleet, Job, Market, runnable
from foretrain.scheduling.state import JobState, State


class Choice(NamedTuple):
    """A configuration; seconds and USD from now to the end of the job on it.

    `usd` is the price of its GPUs, `node_usd` that of its whole nodes.
    """

    configuration: Configuration
    seconds: float
    usd: float
    node_usd: float

    @property
    def gpu_seconds(self) -> float:
        """GPUs times seconds."""
        return self.configuration.gpus * self.configuration.nodes * self.seconds


def choices_of(state: State, job: JobState, roomy: bool = False) -> list[Choice]:
    """Every admissible configuration of a job; none if it has to wait.

    `roomy` leaves out node types that only have fewer GPUs than another (`_larger_types`): on the larger
    node others can join, and `Packing.shrink` takes the smaller type again where none did.
    """
    rows, has_spot = _rows(job.job, state.fleet)
    running = None if job.running is None else job.running.configuration
    if running is not None and not job.may_stop(state.now):
        rows = tuple(row for row in rows if row.configuration == running)
    elif state.is_capped(job.job):
        return []
    elif state.lost or has_spot or math.isfinite(job.job.budget_usd):
        allowed = set(state.configurations(job))
        rows = tuple(row for row in rows if row.configuration in allowed)
    left, again = job.left(state.now) * job.pace, job.overhead_seconds(_ELSEWHERE)
    choices = []
    for configuration, full_seconds, usd, node_usd, is_roomy in rows:
        if running is not None and configuration == running:
            seconds = job.seconds_left(configuration, state.now)
        elif roomy and not is_roomy:
            continue
        else:
            seconds = left * full_seconds + again
        choices.append(Choice(configuration, seconds, seconds * usd, seconds * node_usd))
    return choices


def may_go_on(state: State, job: JobState) -> bool:
    """Whether a running job may go on as it is: within its budget and caps, and safe from interruptions."""
    if job.running is None:
        return False
    if not job.may_stop(state.now):
        return True
    if state.is_capped(job.job):
        return False
    if _rows(job.job, state.fleet)[1] or math.isfinite(job.job.budget_usd):
        return job.running.configuration in state.configurations(job)
    return True


_ELSEWHERE = Configuration("", 0)
"""A configuration no job has: the time without progress of any start elsewhere."""


class _Row(NamedTuple):
    """A configuration of a job that exists in a fleet: seconds of the whole job, prices per second."""

    configuration: Configuration
    seconds: float
    usd: float
    node_usd: float
    is_roomy: bool


_Rows = tuple[tuple[_Row, ...], bool]
"""The configurations of a job, and whether any of them is on spot nodes."""

_REMEMBERED: dict[int, tuple[ref[Job], ref[Fleet], _Rows]] = {}
"""Rows by the identity of a job, for as long as it exists: jobs and fleets rarely change."""


def _rows(job: Job, fleet: Fleet) -> _Rows:
    """The configurations of a job in a fleet, computed once."""
    remembered = _REMEMBERED.get(id(job))
    if remembered is not None and remembered[0]() is job and remembered[1]() is fleet:
        return remembered[2]
    larger = _larger_types(fleet)
    rows = tuple(_row(each, job, fleet, larger) for each in runnable(job, fleet))
    has_spot = any(fleet.types[each.configuration.node_type].market is Market.SPOT for each in rows)
    key = id(job)
    _REMEMBERED[key] = (ref(job, lambda _: _REMEMBERED.pop(key, None)), ref(fleet), (rows, has_spot))
    return rows, has_spot


def _row(configuration: Configuration, job: Job, fleet: Fleet, larger: Mapping[str, Sequence[str]]) -> _Row:
    node_type = fleet.types[configuration.node_type]
    usd = node_type.usd_per_second * configuration.nodes
    seconds = job.seconds[configuration]
    is_roomy = configuration.nodes > 1 or not any(
        job.seconds.get(Configuration(other, configuration.gpus), math.inf) <= seconds
        for other in larger[configuration.node_type]
    )
    return _Row(configuration, seconds, usd * configuration.gpus / node_type.gpus, usd, is_roomy)


def _larger_types(fleet: Fleet) -> dict[str, list[str]]:
    """For each type those that do the same with more GPUs, for about the same price per GPU.

    Only types of the same GPU and market count that the same groups of nodes may take.
    """
    groups = {
        name: [index for index, group in enumerate(fleet.groups) if name in group.types]
        for name in fleet.types
    }
    return {
        one.name: [
            other.name
            for other in fleet.types.values()
            if other.gpu == one.gpu
            and other.gpus > one.gpus
            and other.market is one.market
            and other.usd_per_hour / other.gpus <= _ABOUT * one.usd_per_hour / one.gpus
            and groups[other.name] == groups[one.name]
        ]
        for one in fleet.types.values()
    }


_ABOUT = 1.05
"""Prices of a GPU within this factor are about the same."""


def in_time(choices: Iterable[Choice], seconds: float) -> list[Choice]:
    """The choices that end within some time."""
    return [each for each in choices if each.seconds <= seconds * (1 + 1e-12)]


def cheapest_in_time(choices: Sequence[Choice], seconds: float, alone: bool = False) -> Choice | None:
    """The cheapest choice that ends within some time, else the fastest; None if there is no choice.

    `alone` counts whole nodes.
    """
    good = in_time(choices, seconds)
    if good:
        return min(good, key=(lambda each: (each.node_usd, each.seconds)) if alone else _usd_first)
    return min(choices, key=lambda each: (each.seconds, each.usd), default=None)


def fewest_gpu_seconds(choices: Sequence[Choice]) -> Choice | None:
    """The choice with the fewest GPU-seconds, then the fastest; None if there is no choice."""
    return min(choices, key=lambda each: (each.gpu_seconds, each.seconds, each.usd), default=None)


def slack_seconds(state: State, job: JobState) -> float:
    """Time to the deadline."""
    return job.job.deadline_seconds - state.now


def _usd_first(choice: Choice) -> tuple[float, float]:
    return choice.usd, choice.seconds
