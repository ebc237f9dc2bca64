"""Devices that share processor cores: workers on one machine, whose exchanges need the same cores.

A task keeps a share of its core busy while it runs at full speed: all of it if it computes, as much as moving
data takes if it is an exchange. As long as the tasks that run on a core want no more than the core, each runs
at full speed; otherwise the core is shared out fairly (max-min: who wants little gets it, the rest is divided
equally), as an operating system does with threads:

    speed of a task = what it gets of its core / what it wants of it <= 1

Order on a stream and `after` are those of `timeline`; with a core for each device and exchanges that want
nothing, so are the times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from foretrain.prediction.timeline import Stream, Task, Timeline

_DONE = 1e-12
"""Seconds left that count as none: sums of floats."""

Wants = Callable[[Task], float]


def simulate_on_cores(tasks: Sequence[Task], core_of_device: Mapping[int, int], wants: Wants) -> Timeline:
    """The times of tasks where devices share cores; `wants` tells which share of a core a task wants."""
    run = _Run(tasks, core_of_device, [min(1.0, max(0.0, wants(task))) for task in tasks])
    while run.active:
        run.advance()
    return Timeline(tuple(tasks), np.array(run.starts), np.array(run.ends))


class _Run:
    """Where every task stands."""

    def __init__(
        self, tasks: Sequence[Task], core_of_device: Mapping[int, int], wanted: Sequence[float]
    ) -> None:
        self._tasks, self._wanted = tasks, wanted
        self._cores = [core_of_device[task.stream.device] for task in tasks]
        self._left = [task.seconds for task in tasks]
        self._waits_for = [len(set(task.after)) for task in tasks]
        self._waiting: list[list[int]] = [[] for _ in tasks]
        for index, task in enumerate(tasks):
            before = set(task.after)
            for other in before:
                self._waiting[other].append(index)
        last: dict[Stream, int] = {}
        for index, task in enumerate(tasks):
            if task.stream in last and last[task.stream] not in task.after:
                self._waiting[last[task.stream]].append(index)
                self._waits_for[index] += 1
            last[task.stream] = index
        self.now = 0.0
        self.starts, self.ends = [0.0] * len(tasks), [0.0] * len(tasks)
        self.active = [index for index, count in enumerate(self._waits_for) if count == 0]

    def advance(self) -> None:
        """Go on until the next task ends."""
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
        for other in self._waiting[index]:
            self._waits_for[other] -= 1
            if self._waits_for[other] == 0:
                self.starts[other] = self.now
                self.active.append(other)

    def _speeds(self) -> dict[int, float]:
        on_core: dict[int, list[int]] = {}
        for index in self.active:
            on_core.setdefault(self._cores[index], []).append(index)
        speeds: dict[int, float] = {}
        for indices in on_core.values():
            got = fair_shares([self._wanted[index] for index in indices])
            for index, share in zip(indices, got, strict=True):
                speeds[index] = share / self._wanted[index] if self._wanted[index] else 1.0
        return speeds


def fair_shares(wanted: Sequence[float], capacity: float = 1.0) -> list[float]:
    """Max-min fair shares: nobody gets more than wanted, and nobody less than a larger wish gets."""
    shares = [0.0] * len(wanted)
    left = capacity
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    for served, index in enumerate(order):
        shares[index] = min(wanted[index], left / (len(wanted) - served))
        left -= shares[index]
    return shares
