"""Chrome traces of torch.profiler (Kineto): operators of the CPU, kernels of a GPU, and what links them.

An operator (`cpu_op`) is nested in other operators and annotations of its thread. A kernel is linked to its
operator by its external id or, through the runtime call that launched it, by its correlation id. An operator
of the backward pass runs inside `autograd::engine::evaluate_function` and has the sequence number of the
forward operator that it differentiates.

Reference: the trace format of Kineto, https://github.com/pytorch/kineto, libkineto/src/output_json.cpp.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretrain.errors import InvalidData, InvalidRequest, MissingData

OPERATOR, ANNOTATION, PYTHON = "cpu_op", "user_annotation", "python_function"
KERNELS = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
RUNTIMES = frozenset({"cuda_runtime", "cuda_driver", "hip_runtime"})
MODULE = "nn.Module: "
STEP = "ProfilerStep"
BACKWARD = "autograd::engine::evaluate_function"
UPDATE, ZERO_GRADIENTS = "Optimizer.step", "Optimizer.zero_grad"
_MICROSECOND = 1e-6
_GZIP = b"\x1f\x8b"
_TOLERANCE = 0.01
"""Microseconds by which rounding lets an event end after the one it is nested in."""
_HOW = "export it with torch.profiler.profile(...).export_chrome_trace"


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """A complete event of a thread; times in microseconds as in the file."""

    name: str
    category: str
    thread: tuple[Any, Any]
    start: float
    end: float
    external_id: int | None
    correlation: int | None
    sequence: int | None

    @property
    def seconds(self) -> float:
        """Its duration."""
        return (self.end - self.start) * _MICROSECOND


@dataclass(frozen=True, eq=False)
class CallNode:
    """An event with the events nested in it."""

    event: TraceEvent
    children: tuple[CallNode, ...]

    def walk(self) -> Iterator[CallNode]:
        """This node and all below it."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children))


@dataclass(frozen=True, eq=False)
class KinetoTrace:
    """The events of a trace: threads of the CPU as trees, kernels by operator, and windows of steps."""

    file: str
    roots: tuple[CallNode, ...]
    steps: tuple[tuple[float, float], ...]
    kernels: Mapping[int, tuple[TraceEvent, ...]]
    unlinked_kernels: int
    device_name: str

    @property
    def has_kernels(self) -> bool:
        """Whether a GPU was traced."""
        return bool(self.kernels) or self.unlinked_kernels > 0


def read_trace(file: Path) -> KinetoTrace:
    """A trace file of torch.profiler, plain or compressed; anything else raises `InvalidData`."""
    content = _content(file)
    listed = content.get("traceEvents") if isinstance(content, dict) else content
    if not isinstance(listed, list):
        raise InvalidData(str(file), f"has no list traceEvents, so it is no Chrome trace; {_HOW}")
    events = [event for each in listed if (event := _event(each)) is not None]
    if not any(event.category == OPERATOR for event in events):
        categories = sorted({event.category for event in events if event.category})[:6]
        present = f"; its categories are {', '.join(categories)}" if categories else ""
        raise InvalidData(
            str(file), f"has no operators (events of category cpu_op) of torch.profiler{present}; {_HOW}"
        )
    nested = [event for event in events if event.category in (OPERATOR, ANNOTATION, PYTHON)]
    roots = tuple(root for thread in _by_thread(nested) for root in _nested(thread))
    kernels, unlinked = _kernels(events, roots)
    properties = content.get("deviceProperties") if isinstance(content, dict) else None
    return KinetoTrace(str(file), roots, _steps(str(file), nested), kernels, unlinked, _device(properties))


def _content(file: Path) -> Any:
    try:
        raw = file.read_bytes()
    except FileNotFoundError:
        raise MissingData(f"there is no trace file {str(file)!r}; {_HOW}") from None
    except IsADirectoryError:
        raise InvalidRequest(f"{str(file)!r} is a folder; name a trace file") from None
    try:
        return json.loads(gzip.decompress(raw) if raw[:2] == _GZIP else raw)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InvalidData(str(file), f"is a truncated or damaged gzip file ({error}); {_HOW}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidData(str(file), f"is not JSON or is truncated ({error}); {_HOW}") from error


def _event(raw: Any) -> TraceEvent | None:
    """A complete event (`ph` X) with a finite duration; others carry no time."""
    if not isinstance(raw, dict) or raw.get("ph") != "X":
        return None
    start, duration = _number(raw.get("ts")), _number(raw.get("dur"))
    if start is None or duration is None or duration < 0:
        return None
    args = raw.get("args")
    args = args if isinstance(args, dict) else {}
    return TraceEvent(
        name=str(raw.get("name", "")),
        category=str(raw.get("cat", "")),
        thread=(raw.get("pid"), raw.get("tid")),
        start=start,
        end=start + duration,
        external_id=_whole(args.get("External id", args.get("external id"))),
        correlation=_whole(args.get("correlation")),
        sequence=_whole(args.get("Sequence number")),
    )


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _whole(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def _by_thread(events: Sequence[TraceEvent]) -> Iterator[list[TraceEvent]]:
    threads: dict[tuple[Any, Any], list[TraceEvent]] = defaultdict(list)
    for event in events:
        threads[event.thread].append(event)
    yield from threads.values()


def _nested(events: list[TraceEvent]) -> list[CallNode]:
    """The events of one thread as trees: an event contains those that start and end within it."""
    open_events: list[tuple[TraceEvent, list[CallNode]]] = []
    roots: list[CallNode] = []

    def close() -> None:
        event, children = open_events.pop()
        (open_events[-1][1] if open_events else roots).append(CallNode(event, tuple(children)))

    for event in sorted(events, key=lambda each: (each.start, -each.end, each.category == OPERATOR)):
        while open_events and event.end > open_events[-1][0].end + _TOLERANCE:
            close()
        while open_events and event.start >= open_events[-1][0].end:
            close()
        open_events.append((event, []))
    while open_events:
        close()
    return roots


def _kernels(
    events: Sequence[TraceEvent], roots: Sequence[CallNode]
) -> tuple[dict[int, tuple[TraceEvent, ...]], int]:
    """Kernels by the external id of their operator, and how many kernels have none."""
    launched = {event.correlation: event for event in events if event.category in RUNTIMES}
    known = {
        node.event.external_id for root in roots for node in root.walk() if node.event.category == OPERATOR
    }
    innermost = _Innermost(roots)
    linked: dict[int, list[TraceEvent]] = defaultdict(list)
    unlinked = 0
    for event in events:
        if event.category not in KERNELS:
            continue
        operator = event.external_id
        launch = launched.get(event.correlation) if event.correlation is not None else None
        if operator not in known and launch is not None:
            operator = launch.external_id
            if operator not in known:
                operator = innermost.at(launch)
        if operator is None or operator not in known:
            unlinked += 1
        else:
            linked[operator].append(event)
    return {operator: tuple(listed) for operator, listed in linked.items()}, unlinked


class _Innermost:
    """The innermost operator of a thread that is running at a time."""

    def __init__(self, roots: Sequence[CallNode]) -> None:
        self._roots: dict[tuple[Any, Any], list[CallNode]] = defaultdict(list)
        for root in roots:
            self._roots[root.event.thread].append(root)

    def at(self, launch: TraceEvent) -> int | None:
        """The external id of the innermost operator around the start of a runtime call."""
        nodes: Sequence[CallNode] = self._roots.get(launch.thread, ())
        operator = None
        while nodes:
            place = bisect_right([node.event.start for node in nodes], launch.start) - 1
            if place < 0 or nodes[place].event.end < launch.start:
                break
            if nodes[place].event.category == OPERATOR:
                operator = nodes[place].event.external_id
            nodes = nodes[place].children
        return operator


def _steps(file: str, events: Sequence[TraceEvent]) -> tuple[tuple[float, float], ...]:
    """Start and end of each training step: annotated steps, else from one optimizer update to the next."""
    annotated = sorted(
        (event.start, event.end)
        for event in events
        if event.category == ANNOTATION and event.name.startswith(STEP)
    )
    if annotated:
        return tuple(annotated)
    updates = sorted(event.end for event in events if event.name.startswith(UPDATE))
    start, end = min(event.start for event in events), max(event.end for event in events)
    if not updates:
        if not any(event.name.startswith(BACKWARD) for event in events):
            raise InvalidData(
                file,
                "has neither steps (ProfilerStep#), nor a backward pass, nor an optimizer update: profile "
                "whole training steps and call profiler.step() after each",
            )
        return ((start, end),)
    return tuple(zip((start, *updates[:-1]), updates, strict=True))


def _device(properties: Any) -> str:
    if isinstance(properties, list) and properties and isinstance(properties[0], dict):
        return str(properties[0].get("name", ""))
    return ""
