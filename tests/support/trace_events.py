"""The part of Chrome's Trace Event Format that a trace of ours uses, as a schema, and its check.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU: the JSON object format,
complete events (X) and metadata events (M).
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

NUMBER, TEXT, WHOLE, OBJECT, LIST = (int, float), str, int, dict, list
DOCUMENT: dict[str, Any] = {"traceEvents": LIST, "displayTimeUnit": TEXT, "otherData": OBJECT}
EVENTS: dict[str, dict[str, Any]] = {
    "X": {"name": TEXT, "cat": TEXT, "ph": TEXT, "ts": NUMBER, "dur": NUMBER, "pid": WHOLE, "tid": WHOLE},
    "M": {"name": TEXT, "ph": TEXT, "pid": WHOLE, "tid": WHOLE, "args": OBJECT},
}
METADATA = {"process_name", "thread_name"}
_NANOSECOND = 1e-3


def check_trace(document: Any) -> None:
    """Raise if a document is no trace that Perfetto or chrome://tracing would draw as meant."""
    _check(document, DOCUMENT)
    assert document["displayTimeUnit"] in ("ms", "ns")
    named: dict[str, set[tuple[int, int]]] = {name: set() for name in METADATA}
    complete: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for event in document["traceEvents"]:
        assert event.get("ph") in EVENTS, event
        _check(event, EVENTS[event["ph"]])
        place = (event["pid"], event["tid"])
        if event["ph"] == "M":
            assert event["name"] in METADATA, event
            assert isinstance(event["args"]["name"], str), event
            named[event["name"]].add(place)
        else:
            assert event["ts"] >= 0, event
            assert event["dur"] >= 0, event
            complete[place].append((event["ts"], event["ts"] + event["dur"]))
    assert set(complete) <= named["thread_name"]
    assert {pid for pid, _ in complete} <= {pid for pid, _ in named["process_name"]}
    for place, events in complete.items():
        around: list[float] = []  # ends of the events that are open, outermost first
        for start, end in sorted(events, key=lambda event: (event[0], -event[1])):
            while around and start >= around[-1] - _NANOSECOND / 10:
                around.pop()
            is_inside = not around or end <= around[-1] + _NANOSECOND / 10
            assert is_inside, f"events overlap on {place}: {around[-1]} and {start}"
            around.append(end)


def _check(event: Any, wanted: dict[str, Any]) -> None:
    assert isinstance(event, dict), event
    assert set(event) == set(wanted), event
    for key, kind in wanted.items():
        assert isinstance(event[key], kind), (key, event)
        assert not isinstance(event[key], bool), (key, event)
