"""Timelines of devices that share processor cores, such as several workers on one machine.

At full speed a task occupies a share of its core: 1 if it computes, less if it exchanges data. If the demands
of the tasks on a core add up to at most 1, all run at full speed. Otherwise the core is divided by max-min
fairness, as an operating system divides it between threads:

    speed of a task = its share of the core / its demand <= 1

Streams and dependencies are those of `timeline`. With one core per device and exchanges without demand the
times are the same, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from foretrain.prediction.timeline import Stream, Task, Timeline

_DONE = 1e-12
"""Remaining seconds below which a task has ended; larger than rounding errors."""

Demand = Callable[[Task], float]


def simulate_on_cores(tasks: Sequence[Task], core_of_device: Mapping[int, int], demand: Demand) -> Timeline:
    """The times of tasks on shared cores; `demand` is the share of a core that a task occupies."""
    run = _Run(tasks, core_of_device, [min(1.0, max(0.0, demand(task))) for task in tasks])
    while run.active:
        run.advance()
    return Timeline(tuple(tasks), np.array(run.starts), np.array(run.ends))


class _Run:
    """State of the simulation: remaining seconds and unmet dependencies of every task."""

    def __init__(
        self, tasks: Sequence[Task], core_of_device: Mapping[int, int], demands: Sequence[float]
    ) -> None:
        self._tasks, self._demands = tasks, demands
        self._cores = [core_of_device[task.stream.device] for task in tasks]
        self._left = [task.seconds for task in tasks]
        self._unmet = [len(set(task.after)) for task in tasks]
        self._dependents: list[list[int]] = [[] for _ in tasks]
        for index, task in enumerate(tasks):
            for other in set(task.after):
                self._dependents[other].append(index)
        last: dict[Stream, int] = {}
        for index, task in enumerate(tasks):
            if task.stream in last and last[task.stream] not in task.after:
                self._dependents[last[task.stream]].append(index)
                self._unmet[index] += 1
            last[task.stream] = index
        self.now = 0.0
        self.starts, self.ends = [0.0] * len(tasks), [0.0] * len(tasks)
        self.active = [index for index, count in enumerate(self._unmet) if count == 0]

    def advance(self) -> None:
        """Advance to the next end of a task."""
        speeds = self._speeds()
        step = min(self._left[index] / speed for index, speed in speeds.items())
        self.now += step
        ended = []
        for index, speed in speeds.items():
            self._left[index] -= step * speed
            if self._left[index] <= _DONE:
                ended.append(index)
        for index in ended:
            self._end(index)

    def _end(self, index: int) -> None:
        self.ends[index] = self.now
        self.active.remove(index)
        for other in self._dependents[index]:
            self._unmet[other] -= 1
            if self._unmet[other] == 0:
                self.starts[other] = self.now
                self.active.append(other)

    def _speeds(self) -> dict[int, float]:
        on_core: dict[int, list[int]] = {}
        for index in self.active:
            on_core.setdefault(self._cores[index], []).append(index)
        speeds: dict[int, float] = {}
        for indices in on_core.values():
            shares = fair_shares([self._demands[index] for index in indices])
            for index, share in zip(indices, shares, strict=True):
                speeds[index] = share / self._demands[index] if self._demands[index] else 1.0
        return speeds


def fair_shares(demands: Sequence[float], capacity: float = 1.0) -> list[float]:
    """Max-min fair shares of a capacity: the smallest demands are met first, the rest is divided equally."""
    shares = [0.0] * len(demands)
    remaining = capacity
    order = sorted(range(len(demands)), key=lambda index: demands[index])
    for served, index in enumerate(order):
        shares[index] = min(demands[index], remaining / (len(demands) - served))
        remaining -= shares[index]
    return shares
