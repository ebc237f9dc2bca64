"""A timeline as a Chrome trace: JSON that Perfetto and chrome://tracing open.

The format is that of the "Trace Event Format" document: complete events (`ph` X) with microseconds, a process
for each device and a thread for each of its streams, named by metadata events (`ph` M).
"""

from __future__ import annotations

from typing import Any

from foretrain.prediction.timeline import Stream, Timeline

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
