"""What one worker uses in the course of a step: computing, memory, transmit and receive, from the timeline.

A cycle is the time between two of the worker's own steps: the step itself or, where servers update with each
gradient, the step times the workers per update. The timeline is stretched to the predicted step: computing to
its predicted time, the gaps to all other time (waits for exchanges, for the slowest worker, for input).

    computing   share of the time in which kernels run, without those that only exchange data; cores of a CPU
    memory      compulsory traffic of the operators over the peak bandwidth; resident bytes on a CPU
    transmit,   bytes of the worker's exchanges on the wire, spread over the time of each exchange. Of n bytes
    receive     among p members an all-reduce moves 2(p-1)/p n in each direction, a gather, a scatter or an
                all-to-all (p-1)/p n, and all others n. A worker pushes all its gradients to the servers in
                the first half of what remains after computing, and pulls all parameters in the second.

When the kernels of a step run on its timeline, and how much of the device and its memory they use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from foretrain.prediction.collectives.costs import Verb
from foretrain.prediction.corrections.workers import worker_calibration
from foretrain.prediction.cost_models import call_times
from foretrain.prediction.resources.bursts import Signal, constant, stack_spans
from foretrain.prediction.scenario import Evaluation
from foretrain.prediction.step.compose import exchange_count
from foretrain.prediction.step.parallel import ParallelStep
from foretrain.prediction.strategies.program import gradients
from foretrain.prediction.timeline import COMPUTE, HOST, Stream, Timeline, length, without
from foretrain.store.runs import Floats, Resource
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
            rounds = 1 if phase is Phase.OPTIMIZER else _count_shown(step, len(tasks))
            shares = np.stack([times.device[mine], moved[mine]]) / taken[mine]
            filled, density = _fill_tasks(tasks, np.tile(taken[mine], rounds))
            listed.append((filled, np.tile(shares, rounds) * density))
    if not listed:
        return KernelSpans(np.empty((0, 2)), np.empty(0), np.empty(0))
    spans = np.concatenate([each for each, _ in listed])
    busy, moving = np.concatenate([shares for _, shares in listed], axis=1)
    return KernelSpans(spans, np.minimum(busy, 1.0), np.minimum(moving, 1.0))


def _count_shown(step: ParallelStep, tasks: int) -> int:
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


def _fill_tasks(tasks: Floats, taken: Floats) -> tuple[Floats, Floats]:
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


_DIVIDED = {Verb.ALL_REDUCE: 2.0, Verb.ALL_GATHER: 1.0, Verb.REDUCE_SCATTER: 1.0, Verb.ALL_TO_ALL: 1.0}
"""Passes of (p - 1) / p of the message that each member sends, and receives."""


@dataclass(frozen=True, eq=False)
class WorkerCycle:
    """The signals of one worker over a cycle; `link` carries its exchanges, empty if it has none."""

    period_seconds: float
    signals: Mapping[Resource, Signal]
    link: str


def worker_cycle(evaluation: Evaluation, cores: float | None = None) -> WorkerCycle:
    """The cycle of a worker of an evaluated step: of the busiest stage, where there are several.

    `cores` are those that a worker on a CPU has, if known otherwise than by the calibration of its machine.
    """
    if evaluation.step.layout.servers is not None:
        return _with_servers(evaluation, cores)
    step, period = evaluation.step, evaluation.seconds
    device = step.run.busiest if step.layout.pipeline > 1 else 0
    stretch = _stretch(step, device, period)
    return _cycle(
        evaluation,
        period,
        _computing(evaluation, device, stretch, period, cores),
        [(*stretch(span), moved) for span, moved in _list_exchanges(step, _sends(device))],
        [(*stretch(span), moved) for span, moved in _list_exchanges(step, _receives(device))],
    )


def _with_servers(evaluation: Evaluation, cores: float | None) -> WorkerCycle:
    """A worker computes, pushes its gradients and pulls parameters."""
    step, run = evaluation.step, evaluation.step.run
    turns = step.layout.data / step.traffic[0].count if step.staleness else 1.0
    period = evaluation.seconds * turns
    busy = min(period, (run.computing_seconds + run.waiting_seconds) * turns)
    middle = (busy + period) / 2
    size = float(sum(gradient.bytes for gradient in gradients(evaluation.graph)))
    size *= any(each.seconds > 0 for each in step.traffic)
    stretch = _Stretch(np.array([0.0, run.timeline.seconds]), np.array([0.0, busy]))
    computing = _computing(evaluation, 0, stretch, period, cores)
    tier = evaluation.context.environment.network.inter
    if tier is not None:  # several servers send faster than one worker's card receives
        size = min(size, (middle - busy) * tier.nominal_bytes_per_second)
    return _cycle(evaluation, period, computing, [(busy, middle, size)], [(middle, period, size)])


_Amounts = list[tuple[float, float, float]]
"""Start, end and amount."""


def _cycle(
    evaluation: Evaluation,
    period: float,
    computing: Mapping[Resource, Signal],
    sent: _Amounts,
    received: _Amounts,
) -> WorkerCycle:
    traffic = max(evaluation.step.traffic, key=lambda each: each.seconds, default=None)
    signals = {
        **computing,
        Resource.TRANSMIT: stack_spans(sent, period),
        Resource.RECEIVE: stack_spans(received, period),
    }
    return WorkerCycle(period, signals, "" if traffic is None else traffic.tier)


@dataclass(frozen=True, eq=False)
class _Stretch:
    """A monotonous map from the time of the timeline to that of the cycle."""

    before: Floats
    after: Floats

    def __call__(self, seconds: Floats) -> Floats:
        mapped: Floats = np.interp(seconds, self.before, self.after)
        return mapped


def _stretch(step: ParallelStep, device: int, period: float) -> _Stretch:
    """Computing becomes as long as predicted, and what is between its spans takes the rest of the period.

    The passes of a pipeline include waits, so that all of its timeline is stretched by one factor.
    """
    run, end = step.run, step.run.timeline.seconds
    busy = run.timeline.spans([Stream(device, COMPUTE)])
    if step.layout.pipeline > 1 or not len(busy):
        return _Stretch(np.array([0.0, end]), np.array([0.0, period]))
    gaps = without(np.array([[0.0, end]]), busy)
    computing = min(period, run.computing_seconds + run.waiting_seconds)
    widths = np.append(
        np.full(len(busy), computing / length(busy)),
        np.full(len(gaps), (period - computing) / length(gaps) if len(gaps) else 0.0),
    )
    spans = np.concatenate([busy, gaps])
    order = np.argsort(spans[:, 0], kind="stable")
    after = np.cumsum(((spans[:, 1] - spans[:, 0]) * widths)[order])
    return _Stretch(np.append(0.0, spans[order, 1]), np.append(0.0, after))


def _computing(
    evaluation: Evaluation, device: int, stretch: _Stretch, period: float, cores: float | None
) -> dict[Resource, Signal]:
    """The signals of computing and of memory."""
    kernels = kernel_spans(evaluation.step, device)
    spans = stretch(kernels.spans)

    def signal(levels: Floats) -> Signal:
        amounts = levels * (spans[:, 1] - spans[:, 0])
        return stack_spans(
            [*zip(*spans.T.tolist(), amounts.tolist(), strict=True)] if len(spans) else [], period
        )

    if evaluation.context.environment.device.is_cpu:
        own = _cores_of_a_worker(evaluation) if cores is None else cores
        return {
            Resource.CPU: signal(kernels.busy * own),
            Resource.MEMORY: constant(evaluation.memory.bytes, period),
        }
    return {Resource.GPU: signal(kernels.busy), Resource.GPU_MEMORY_BUSY: signal(kernels.moving)}


def _cores_of_a_worker(evaluation: Evaluation) -> float:
    """Cores that a computing worker uses: those of its device, fewer where workers share them."""
    hardware = evaluation.context.hardware
    sheet = hardware.device.sheet
    own = sheet.number("cores") if sheet.has("cores") else 1.0
    known = worker_calibration(hardware.device.id)
    if known is None:
        return own
    on_machine = hardware.devices if hardware.device.is_this_machine else hardware.devices_per_node
    return min(own, known.cores / on_machine)


_Streams = Callable[[Stream], bool]


def _sends(device: int) -> _Streams:
    """The streams on which a device sends."""
    return lambda stream: stream.device == device


def _receives(device: int) -> _Streams:
    """Those on which it receives: its own collectives, and what neighbouring stages send."""
    senders = {"send forward": device - 1, "send back": device + 1}
    return lambda stream: stream.device == senders.get(stream.lane, device)


def _list_exchanges(step: ParallelStep, includes: _Streams) -> Iterator[tuple[Floats, float]]:
    """Span and wire bytes of the exchanges on some streams.

    A timeline may show fewer micro-batches than a step has; those shown carry the bytes of all.
    """
    timeline, program = step.run.timeline, step.run.stages[step.run.busiest]
    sizes: dict[str, float] = {}
    for each in program.exchanges:  # several may have one name, such as the gathers of both passes
        sizes[each.name] = sizes.get(each.name, 0.0) + each.bytes * exchange_count(each, program)
    totals = {verb: sum(each.bytes for each in step.traffic if each.verb is verb) for verb in Verb}
    shown = [
        (task, start, end)
        for task, start, end in zip(timeline.tasks, timeline.starts, timeline.ends, strict=True)
        if task.stream.lane not in (COMPUTE, HOST) and includes(task.stream)
    ]
    of_name, of_verb = (
        {key: keys.count(key) for key in set(keys)}
        for keys in ([task.name for task, *_ in shown], [task.kind for task, *_ in shown])
    )
    for task, start, end in shown:
        verb = Verb(task.kind)
        size = sizes[task.name] / of_name[task.name] if task.name in sizes else (
            totals[verb] / of_verb[task.kind]
        )  # fmt: skip
        yield np.array([start, end]), size * _on_the_wire(verb, step)


def _on_the_wire(verb: Verb, step: ParallelStep) -> float:
    """Bytes that a member sends over those of the message."""
    if verb not in _DIVIDED:
        return 1.0
    members = max((each.members for each in step.traffic if each.verb is verb), default=1)
    return _DIVIDED[verb] * (members - 1) / members
