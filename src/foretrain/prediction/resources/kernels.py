"""When the kernels of a step run on its timeline, and how much of the device and its memory they use."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrain.prediction.cost_models.priced_step import call_times
from foretrain.prediction.step.parallel import ParallelStep
from foretrain.prediction.timeline import COMPUTE, Stream, Timeline
from foretrain.store.runs import Floats
from foretrain.workloads.graph import Phase

_MOST_SHOWN = 3
"""Micro-batches that a timeline without pipeline shows at most (`step.compose`)."""


@dataclass(frozen=True, eq=False)
class KernelSpans:
    """Rows of (start, end) of calls in the time of the timeline.

    `busy` is the share of each in which kernels run, the rest being waits for launches; `moving` the share of
    it in which memory would move the compulsory traffic at its peak bandwidth.
    """

    spans: Floats
    busy: Floats
    moving: Floats


def kernel_spans(step: ParallelStep, device: int) -> KernelSpans:
    """The calls of a device. Those of a phase fill its tasks in order, once for each micro-batch shown."""
    priced = step.priced
    times = call_times(priced)
    moved = np.bincount(priced.priced.listing.calls, priced.priced.moving, len(times.device))
    phases = np.array([call.phase.value for call in priced.graph.calls])
    launching = float(times.host.sum())
    waits = min(1.0, step.run.waiting_seconds / launching) if launching and not priced.is_whole else 0.0
    taken = times.device + waits * times.host
    listed = []
    for phase in Phase:
        tasks = _tasks(step.run.timeline, device, phase)
        mine = np.flatnonzero((phases == phase.value) & (taken > 0))
        if len(tasks) and len(mine):
            rounds = 1 if phase is Phase.OPTIMIZER else _shown(step, len(tasks))
            shares = np.stack([times.device[mine], moved[mine]]) / taken[mine]
            filled, density = _filled(tasks, np.tile(taken[mine], rounds))
            listed.append((filled, np.tile(shares, rounds) * density))
    if not listed:
        return KernelSpans(np.empty((0, 2)), np.empty(0), np.empty(0))
    spans = np.concatenate([each for each, _ in listed])
    busy, moving = np.concatenate([shares for _, shares in listed], axis=1)
    return KernelSpans(spans, np.minimum(busy, 1.0), np.minimum(moving, 1.0))


def _shown(step: ParallelStep, tasks: int) -> int:
    """Micro-batches that the timeline shows: each is one task of a phase in a pipeline."""
    if step.layout.pipeline > 1:
        return tasks
    return max(1, min(_MOST_SHOWN, step.run.stages[0].micro_batches))


def _tasks(timeline: Timeline, device: int, phase: Phase) -> Floats:
    stream = Stream(device, COMPUTE)
    rows = [
        (start, end)
        for task, start, end in zip(timeline.tasks, timeline.starts, timeline.ends, strict=True)
        if task.stream == stream and task.kind == phase and end > start
    ]
    return np.array(rows, float).reshape(-1, 2)


def _filled(tasks: Floats, taken: Floats) -> tuple[Floats, Floats]:
    """Spans of calls that fill tasks in order, in proportion to their time, and the share of each in tasks.

    The span of a call that crosses the gap between two tasks includes the gap, in which it does not run.
    """
    lengths = tasks[:, 1] - tasks[:, 0]
    ends = np.cumsum(taken)
    ends *= float(lengths.sum()) / ends[-1]
    starts = np.append(0.0, ends[:-1])
    reached = np.append(0.0, np.cumsum(lengths))
    first = np.clip(np.searchsorted(reached, starts, side="right") - 1, 0, len(tasks) - 1)
    last = np.clip(np.searchsorted(reached, ends, side="left") - 1, 0, len(tasks) - 1)
    spans = np.stack(
        [starts + tasks[first, 0] - reached[first], ends + tasks[last, 0] - reached[last]], axis=1
    )
    widths = spans[:, 1] - spans[:, 0]
    return spans, np.divide(ends - starts, widths, out=np.ones(len(widths)), where=widths > 0)
