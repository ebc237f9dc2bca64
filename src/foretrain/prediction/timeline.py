"""Timelines: start and end of every task on the streams of the devices, idle gaps, and Chrome traces.

The tasks of a stream run in the order they are listed. A task starts when the tasks it depends on (`after`)
have ended:

    start = max(end of the previous task of its stream, ends of the tasks in `after`)

"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Spans = NDArray[np.float64]
"""Rows of (start, end), sorted and disjoint."""

COMPUTE = "compute"
HOST = "host"


class Stream(NamedTuple):
    """One queue of a device: its kernels, its exchanges along one axis, or the launches of its host."""

    device: int
    lane: str


class Task(NamedTuple):
    """Work on a stream. `after` holds indices of tasks listed before it."""

    name: str
    stream: Stream
    seconds: float
    after: tuple[int, ...] = ()
    kind: str = ""


class TimedOperator(NamedTuple):
    """An operator of a task, in the order they run: its name, module and seconds on the device."""

    name: str
    module: str
    seconds: float


def no_operators(_: int) -> Sequence[TimedOperator]:
    """Tasks of which no operators are known."""
    return ()


@dataclass(frozen=True, eq=False)
class Timeline:
    """Tasks with their times; `operators` lists those of a task, by its number."""

    tasks: tuple[Task, ...]
    starts: Floats
    ends: Floats
    operators: Callable[[int], Sequence[TimedOperator]] = no_operators

    @property
    def seconds(self) -> float:
        """End of the last task."""
        return float(self.ends.max(initial=0.0))

    @cached_property
    def streams(self) -> tuple[Stream, ...]:
        """All streams, by device, compute first."""
        streams = {task.stream for task in self.tasks}
        return tuple(sorted(streams, key=lambda stream: (stream.device, stream.lane != COMPUTE, stream.lane)))

    def spans(self, streams: Iterable[Stream]) -> Spans:
        """The spans in which at least one of the streams is busy."""
        selected = set(streams)
        indices = [index for index, task in enumerate(self.tasks) if task.stream in selected]
        return merge_spans(np.stack([self.starts[indices], self.ends[indices]], axis=1))

    def busy_seconds(self, stream: Stream) -> float:
        """Total time a stream is busy."""
        return length(self.spans([stream]))

    def utilisation(self, stream: Stream) -> float:
        """Share of the timeline in which a stream is busy."""
        return self.busy_seconds(stream) / self.seconds if self.seconds else 0.0

    def gaps(self, stream: Stream) -> Spans:
        """The spans in which a stream is idle, from 0 to the end of the timeline."""
        whole = np.array([[0.0, self.seconds]])
        return without(whole, self.spans([stream]))

    def exposed_seconds(self, device: int) -> float:
        """Time in which a device exchanges data but does not compute."""
        lanes = [stream for stream in self.streams if stream.device == device]
        exchanging = [stream for stream in lanes if stream.lane not in (COMPUTE, HOST)]
        return length(without(self.spans(exchanging), self.spans([Stream(device, COMPUTE)])))


def simulate(tasks: Sequence[Task]) -> Timeline:
    """The start and end of every task."""
    numbers: dict[Stream, int] = {}
    streams = [numbers.setdefault(task.stream, len(numbers)) for task in tasks]
    starts, ends = play(streams, [task.seconds for task in tasks], [task.after for task in tasks])
    return Timeline(tuple(tasks), np.array(starts), np.array(ends))


def play(
    streams: Sequence[int], seconds: Sequence[float], after: Sequence[tuple[int, ...]]
) -> tuple[list[float], list[float]]:
    """Starts and ends of tasks on numbered streams; a step is played many times before one is shown."""
    starts: list[float] = []
    ends: list[float] = []
    free = [0.0] * (max(streams, default=0) + 1)
    for stream, length, others in zip(streams, seconds, after, strict=True):
        start = free[stream]
        for other in others:
            if ends[other] > start:
                start = ends[other]
        free[stream] = end = start + length
        starts.append(start)
        ends.append(end)
    return starts, ends


def merge_spans(spans: Spans) -> Spans:
    """The spans with those that overlap or touch joined."""
    spans = spans[spans[:, 1] > spans[:, 0]]
    if not len(spans):
        return spans
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    reached = np.maximum.accumulate(spans[:, 1])
    first = np.append(True, spans[1:, 0] > reached[:-1])
    last = np.append(first[1:], True)
    return np.stack([spans[first, 0], reached[last]], axis=1)


def without(spans: Spans, others: Spans) -> Spans:
    """The parts of `spans` outside of `others`; both must be sorted and disjoint."""
    parts = []
    for start, end in spans:
        at = start
        for other_start, other_end in others[(others[:, 1] > start) & (others[:, 0] < end)]:
            if other_start > at:
                parts.append((at, other_start))
            at = max(at, other_end)
        if at < end:
            parts.append((at, end))
    return np.array(parts, float).reshape(-1, 2)


def length(spans: Spans) -> float:
    """Total length of spans."""
    return float((spans[:, 1] - spans[:, 0]).sum())
