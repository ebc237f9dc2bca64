"""Timelines: start and end of every task on the streams of the devices, idle gaps, and Chrome traces.

The tasks of a stream run in the order they are listed. A task starts when the tasks it depends on (`after`)
have ended:

    start = max(end of the previous task of its stream, ends of the tasks in `after`)

A Chrome trace is the JSON that Perfetto and chrome://tracing open, as the "Trace Event Format" document
defines it: complete events (`ph` X) in microseconds, a process for each device and a thread for each stream,
named by metadata events (`ph` M). Events of a thread nest or follow each other. A task contains the modules
it runs, a module its submodules, and the innermost one its operators. A trace has at most `most_events`
events: the operators of as many of the first tasks as there is room for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Spans = NDArray[np.float64]
"""Rows of (start, end), sorted and disjoint."""
COMPUTE = "compute"
HOST = "host"
MOST_EVENTS = 50_000
"""About 8 MB of JSON."""
_MICRO = 1e6  # traces count microseconds
OPERATOR, MODULE = "operator", "module"


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


class _Slice(NamedTuple):
    """An event inside a task, in seconds."""

    name: str
    kind: str
    start: float
    end: float


def chrome_trace(
    timeline: Timeline, title: str, device_names: tuple[str, ...] = (), most_events: int = MOST_EVENTS
) -> dict[str, Any]:
    """A timeline as a Chrome trace; devices without a name are numbered."""
    threads = {stream: number for number, stream in enumerate(timeline.streams)}
    events = [*_names(threads, device_names)]
    room = most_events - len(events) - len(timeline.tasks)
    has_room, detailed = True, 0
    for number in np.argsort(timeline.starts, kind="stable").tolist():
        task, start, end = timeline.tasks[number], timeline.starts[number], timeline.ends[number]
        if end <= start:
            continue
        place = {"pid": task.stream.device, "tid": threads[task.stream]}
        events.append(_event(_Slice(task.name, task.kind or task.stream.lane, start, end), place))
        inside = [*_inside(timeline.operators(number), start, end)] if has_room else []
        has_room &= len(inside) <= room
        if has_room:
            room -= len(inside)
            detailed += bool(inside)
            events += [_event(each, place) for each in inside]
    others = {"title": title}
    if not has_room:
        others["operators"] = (
            f"those of the first {detailed} tasks that compute: at most {most_events:,} events"
        )
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": others}


def _event(part: _Slice, place: dict[str, int]) -> dict[str, Any]:
    start = _micro(part.start)
    duration = round(_micro(part.end) - start, 3)
    return {"name": part.name, "cat": part.kind, "ph": "X", "ts": start, "dur": duration, **place}


def _micro(seconds: float) -> float:
    """Microseconds rounded to nanoseconds, so that consecutive events of a stream do not overlap."""
    return round(float(seconds) * _MICRO, 3)


def _inside(operators: Sequence[TimedOperator], start: float, end: float) -> Iterator[_Slice]:
    """Modules and operators of a task, which they fill in proportion to their time; outer ones first."""
    lasting = [each for each in operators if each.seconds > 0]
    passed = np.append(0.0, np.cumsum([each.seconds for each in lasting]))
    if not passed[-1]:
        return
    edges = start + (end - start) * (passed / passed[-1])
    edges[-1] = end
    paths = [_levels(each.module) for each in lasting]
    for index, (operator, path) in enumerate(zip(lasting, paths, strict=True)):
        before = paths[index - 1] if index else []
        for depth in range(_shared(before, path), len(path)):
            last = index + 1
            while last < len(paths) and _shared(path, paths[last]) > depth:
                last += 1
            yield _Slice(path[depth], MODULE, edges[index], edges[last])
        yield _Slice(operator.name, OPERATOR, edges[index], edges[index + 1])


def _levels(module: str) -> list[str]:
    """A module and those around it, outermost first; a number belongs to the name before it."""
    parts = module.split(".") if module else []
    return [
        ".".join(parts[:count])
        for count in range(1, len(parts) + 1)
        if count == len(parts) or not parts[count].isdigit()
    ]


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    """How many of the outer modules two operators share."""
    count = 0
    for mine, yours in zip(one, other, strict=False):
        if mine != yours:
            break
        count += 1
    return count


def _names(threads: dict[Stream, int], device_names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for device in sorted({stream.device for stream in threads}):
        name = device_names[device] if device < len(device_names) else f"device {device}"
        yield {"name": "process_name", "ph": "M", "pid": device, "tid": 0, "args": {"name": name}}
    for stream, number in threads.items():
        place = {"pid": stream.device, "tid": number}
        yield {"name": "thread_name", "ph": "M", **place, "args": {"name": stream.lane}}
