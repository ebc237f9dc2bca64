"""Streams.

Work on streams: when each task starts and ends, what waits for what, and what is idle meanwhile.

Tasks of one stream run one after the other, in the order they are listed; none starts before all it comes
`after` have ended:

    start = max(end of the task before it on its stream, ends of those it comes after)
    end   = max(start + seconds, end of what paces it)

A task is `paced` by another if it cannot end before it: kernels cannot have run before they were launched.

A timeline as a Chrome trace: JSON that Perfetto and chrome://tracing open.

The format is that of the "Trace Event Format" document: complete events (`ph` X) with microseconds, a process
for each device and a thread for each of its streams, named by metadata events (`ph` M).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Spans = NDArray[np.float64]
"""Rows of start and end, in order and apart from each other."""

COMPUTE = "compute"
HOST = "host"


class Stream(NamedTuple):
    """One queue of a device: its kernels, the exchanges along one axis, or the launches of its host."""

    device: int
    lane: str


class Task(NamedTuple):
    """Work on a stream; `after` are indices of tasks listed before it."""

    name: str
    stream: Stream
    seconds: float
    after: tuple[int, ...] = ()
    paced_by: int | None = None
    kind: str = ""


@dataclass(frozen=True, eq=False)
class Timeline:
    """Tasks with their times."""

    tasks: tuple[Task, ...]
    starts: Floats
    ends: Floats

    @property
    def seconds(self) -> float:
        """From the start to the last end."""
        return float(self.ends.max(initial=0.0))

    @cached_property
    def streams(self) -> tuple[Stream, ...]:
        """All streams, by device, computing first."""
        found = {task.stream for task in self.tasks}
        return tuple(sorted(found, key=lambda stream: (stream.device, stream.lane != COMPUTE, stream.lane)))

    def spans(self, streams: Iterable[Stream]) -> Spans:
        """When at least one of some streams is busy."""
        chosen = set(streams)
        places = [index for index, task in enumerate(self.tasks) if task.stream in chosen]
        return merged(np.stack([self.starts[places], self.ends[places]], axis=1))

    def busy_seconds(self, stream: Stream) -> float:
        """How long a stream works."""
        return length(self.spans([stream]))

    def utilisation(self, stream: Stream) -> float:
        """The share of the whole time a stream works."""
        return self.busy_seconds(stream) / self.seconds if self.seconds else 0.0

    def gaps(self, stream: Stream) -> Spans:
        """When a stream is idle between the start and the end of the timeline."""
        whole = np.array([[0.0, self.seconds]])
        return without(whole, self.spans([stream]))

    def exposed_seconds(self, device: int) -> float:
        """How long a device exchanges data while it computes nothing."""
        lanes = [stream for stream in self.streams if stream.device == device]
        exchanging = [stream for stream in lanes if stream.lane not in (COMPUTE, HOST)]
        return length(without(self.spans(exchanging), self.spans([Stream(device, COMPUTE)])))


def simulate(tasks: Sequence[Task]) -> Timeline:
    """The times of tasks, in one walk."""
    starts, ends = [0.0] * len(tasks), [0.0] * len(tasks)
    free: dict[Stream, float] = {}
    for index, (_, stream, seconds, after, paced_by, _) in enumerate(tasks):
        start = free.get(stream, 0.0)
        for other in after:
            start = max(start, ends[other])
        end = start + seconds
        if paced_by is not None:
            end = max(end, ends[paced_by])
        starts[index], ends[index] = start, end
        free[stream] = end
    return Timeline(tuple(tasks), np.array(starts), np.array(ends))


def merged(spans: Spans) -> Spans:
    """Spans that overlap or touch, as one."""
    spans = spans[spans[:, 1] > spans[:, 0]]
    if not len(spans):
        return spans
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    reached = np.maximum.accumulate(spans[:, 1])
    first = np.append(True, spans[1:, 0] > reached[:-1])
    last = np.append(first[1:], True)
    return np.stack([spans[first, 0], reached[last]], axis=1)


def without(spans: Spans, others: Spans) -> Spans:
    """What of some spans lies outside of others; both as `merged` gives them."""
    found = []
    for start, end in spans:
        at = start
        for other_start, other_end in others[(others[:, 1] > start) & (others[:, 0] < end)]:
            if other_start > at:
                found.append((at, other_start))
            at = max(at, other_end)
        if at < end:
            found.append((at, end))
    return np.array(found, float).reshape(-1, 2)


def length(spans: Spans) -> float:
    """Seconds of spans together."""
    return float((spans[:, 1] - spans[:, 0]).sum())


_MICRO = 1e6


def chrome_trace(timeline: Timeline, title: str, device_names: tuple[str, ...] = ()) -> dict[str, Any]:
    """The trace of a timeline; devices without a name are numbered."""
    threads = {stream: number for number, stream in enumerate(timeline.streams)}
    events = [*_names(threads, device_names)]
    for task, start, end in zip(timeline.tasks, timeline.starts, timeline.ends, strict=True):
        if end > start:
            events.append(
                {
                    "name": task.name,
                    "cat": task.kind or task.stream.lane,
                    "ph": "X",
                    "ts": _micro(start),
                    "dur": round(_micro(end) - _micro(start), 3),
                    "pid": task.stream.device,
                    "tid": threads[task.stream],
                }
            )
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"title": title}}


def _micro(seconds: float) -> float:
    """Whole nanoseconds, so that what follows on a stream does not begin before the end of what was."""
    return round(float(seconds) * _MICRO, 3)


def _names(threads: dict[Stream, int], device_names: tuple[str, ...]) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    for device in sorted({stream.device for stream in threads}):
        name = device_names[device] if device < len(device_names) else f"device {device}"
        events.append({"name": "process_name", "ph": "M", "pid": device, "tid": 0, "args": {"name": name}})
    for stream, number in threads.items():
        events.append(
            {
                "name": "thread_name",
                "ph": "M",
                "pid": stream.device,
                "tid": number,
                "args": {"name": stream.lane},
            }
        )
    return events
