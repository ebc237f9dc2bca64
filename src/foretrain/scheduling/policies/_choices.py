"""What a job may choose from now: its admissible configurations with the time and cost of what is left of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from foretrain.scheduling.problem import Configuration
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


def choices_of(state: State, job: JobState) -> list[Choice]:
    """Every admissible configuration of a job; none if it has to wait."""
    left, now, types = job.left(state.now), state.now, state.fleet.types
    again = job.overhead_seconds(_ELSEWHERE)
    found = []
    for each in state.configurations(job):
        if job.running is not None and job.running.configuration == each:
            seconds = job.seconds_left(each, now)
        else:
            seconds = left * job.full_seconds(each) + again
        node_type = types[each.node_type]
        node_usd = seconds * node_type.usd_per_second * each.nodes
        found.append(Choice(each, seconds, node_usd * each.gpus / node_type.gpus, node_usd))
    return found


_ELSEWHERE = Configuration("", 0)
"""A configuration no job has: the time without progress of any start elsewhere."""


class Roomy:
    """Leaves out node types that only have fewer GPUs: on the larger node others can join.

    A type gives way to a larger one of the same GPU that the same groups of nodes may take and whose GPUs cost
    about the same. `Packing.shrink` takes the smaller type again where nobody joined.
    """

    def __init__(self, state: State) -> None:
        types = state.fleet.types
        groups: dict[str, set[int]] = {name: set() for name in types}
        for index, group in enumerate(state.fleet.groups):
            for name in group.types:
                groups[name].add(index)
        self._state = state
        self._larger = {
            name: [
                other.name
                for other in types.values()
                if other.gpu == each.gpu
                and other.gpus > each.gpus
                and groups[other.name] == groups[name]
                and other.usd_per_hour / other.gpus <= _ABOUT * each.usd_per_hour / each.gpus
            ]
            for name, each in types.items()
        }

    def choices_of(self, job: JobState) -> list[Choice]:
        """The choices of a job on types that give way to no other."""
        choices = choices_of(self._state, job)
        times = {each.configuration: each.seconds for each in choices}
        return [each for each in choices if not self._gives_way(each, times)]

    def _gives_way(self, choice: Choice, times: Mapping[Configuration, float]) -> bool:
        configuration = choice.configuration
        if configuration.nodes > 1:
            return False
        return any(
            times.get(Configuration(other, configuration.gpus), math.inf) <= choice.seconds
            for other in self._larger[configuration.node_type]
        )


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
