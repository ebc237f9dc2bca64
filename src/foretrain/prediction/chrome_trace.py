"""A timeline as a Chrome trace: the JSON that Perfetto and chrome://tracing open.

As the "Trace Event Format" document defines it: complete events (`ph` X) in microseconds, a process for each
device and a thread for each stream, named by metadata events (`ph` M). Events of a thread nest or follow each
other. A task contains the modules it runs, a module its submodules, and the innermost one its operators.

A trace has at most `most_events` events: the operators of as many of the first tasks as there is room for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from foretrain.prediction.timeline import Stream, TimedOperator, Timeline

MOST_EVENTS = 50_000
"""About 8 MB of JSON."""
_MICRO = 1e6  # traces count microseconds
OPERATOR, MODULE = "operator", "module"


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
