"""Pipeline schedules: the order of passes on each device, and their times.

A model is cut into `stages · chunks` parts in order of execution; part `chunk · stages + stage` is on device
`stage`. A `PipelineSchedule` is the order in which each device runs the passes of its parts.

* `gpipe`: all forward passes, then all backward passes (Huang et al., "GPipe", NeurIPS 2019);
* `1f1b`: after a warm-up, forward and backward passes alternate: the same bubble, at most p activations in
  flight (Narayanan et al., "PipeDream", SOSP 2019; flushed variant of Narayanan et al., ICML 2021);
* `interleaved`: 1F1B over v smaller parts per device: a bubble v times smaller, v times the transfers
  (Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", SC 2021).

`pipeline_seconds` computes the times of a schedule directly, for stages on separate devices and buffered
messages. `pipeline_tasks` lists it as tasks on streams, with the same times, which also run on shared
processors (`experiments.shared_cores`) or with messages that need both sides (`rendezvous`), as with gloo
under `torch.distributed.pipelining`:

* a message starts when the receiver has ended the pass before the one that needs it;
* a stage that changes between forward and backward passes first waits until its own message is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foretrain.errors import InvalidRequest, UnknownName
from foretrain.prediction.timeline import COMPUTE, Stream, Task
from foretrain.workloads.graph import Phase

Integers = NDArray[np.int64]
ONE_FORWARD_ONE_BACKWARD, INTERLEAVED = "1f1b", "interleaved"


class Slot(NamedTuple):
    """One pass of one micro-batch through one part of the model, on device `stage`."""

    stage: int
    chunk: int
    micro_batch: int
    phase: Phase


class Dependency(NamedTuple):
    """`after` needs the result of `before`; `boundary` is the cut it is sent over (None: the same device).

    Boundary i lies between parts i and i + 1 of the model.
    """

    before: Slot
    after: Slot
    boundary: int | None


@dataclass(frozen=True, eq=False)
class PipelineSchedule:
    """The order of passes on each device.

    `order` (stages x slots) holds slots as numbers: (backward? · parts + part) · micro_batches + micro_batch.
    Iteration yields the `Slot`s of each device.
    """

    name: str
    stages: int
    micro_batches: int
    chunks: int
    order: Integers

    @property
    def parts(self) -> int:
        """Number of parts of the model."""
        return self.stages * self.chunks

    @cached_property
    def slots(self) -> tuple[tuple[Slot, ...], ...]:
        """The slots of each device in order."""
        return tuple(tuple(self.slot(number) for number in row) for row in self.order.tolist())

    def __iter__(self) -> Iterator[tuple[Slot, ...]]:
        return iter(self.slots)

    def __len__(self) -> int:
        return self.stages

    def slot(self, number: int) -> Slot:
        """The slot of a number in `order`."""
        place, micro_batch = divmod(number, self.micro_batches)
        backward, part = divmod(place, self.parts)
        chunk, stage = divmod(part, self.stages)
        return Slot(stage, chunk, micro_batch, Phase.BACKWARD if backward else Phase.FORWARD)


def schedule(name: str, stages: int, micro_batches: int, chunks: int = 1) -> PipelineSchedule:
    """The schedule called `name` (one of `SCHEDULES`)."""
    if name not in SCHEDULES:
        raise UnknownName("pipeline schedule", name, SCHEDULES, f"known: {', '.join(SCHEDULES)}")
    if min(stages, micro_batches, chunks) < 1:
        raise InvalidRequest(
            f"stages, micro_batches and chunks must be at least 1, got {stages}, {micro_batches} and {chunks}"
        )
    if chunks > 1 and name != INTERLEAVED:
        raise InvalidRequest(
            f"schedule {name} runs one chunk per device, got chunks={chunks}; use the interleaved schedule"
        )
    if name == INTERLEAVED and micro_batches % stages:
        below = micro_batches // stages * stages
        near = f"{below} or {below + stages}" if below else f"{stages}"
        raise InvalidRequest(
            f"the interleaved schedule requires micro_batches to be a multiple of {stages}, the number of "
            f"stages, got {micro_batches}; use {near}, or schedule 1f1b"
        )
    return _build(name, stages, micro_batches, chunks)


def feasible_schedule(name: str, stages: int, micro_batches: int, chunks: int) -> PipelineSchedule:
    """The schedule by name; 1F1B in place of interleaved with one chunk."""
    if chunks == 1 and name == INTERLEAVED:
        name = ONE_FORWARD_ONE_BACKWARD
    return schedule(name, stages, micro_batches, chunks)


@lru_cache(maxsize=64)
def _build(name: str, stages: int, micro_batches: int, chunks: int) -> PipelineSchedule:
    rows = [SCHEDULES[name](stage, stages, micro_batches, chunks) for stage in range(stages)]
    return PipelineSchedule(name, stages, micro_batches, chunks, np.array(rows, dtype=np.int64))


def _alternating(forward: Integers, backward: Integers, warm_up: int) -> Integers:
    """`warm_up` forward passes, then forward and backward passes in turn, then remaining backward passes."""
    warm_up = min(warm_up, len(forward))
    steady = len(forward) - warm_up
    turns = np.stack([forward[warm_up:], backward[:steady]], axis=1).ravel()
    return np.concatenate([forward[:warm_up], turns, backward[steady:]])


def _gpipe(stage: int, stages: int, micro_batches: int, chunks: int) -> Integers:
    del chunks
    forward = stage * micro_batches + np.arange(micro_batches)
    return np.concatenate([forward, forward + stages * micro_batches])


def _one_forward_one_backward(stage: int, stages: int, micro_batches: int, chunks: int) -> Integers:
    del chunks
    forward = stage * micro_batches + np.arange(micro_batches)
    return _alternating(forward, forward + stages * micro_batches, stages - stage - 1)


def _interleave(stage: int, stages: int, micro_batches: int, chunks: int) -> Integers:
    """Groups of p micro-batches pass through all chunks of a device in turn, as in Megatron-LM.

    Warm-up of device r: 2 (p - r - 1) + (v - 1) p passes; with one chunk the schedule is 1F1B.
    """
    if chunks == 1:
        return _one_forward_one_backward(stage, stages, micro_batches, chunks)
    turn = np.arange(micro_batches * chunks)
    group, within = np.divmod(turn, stages * chunks)
    chunk, member = np.divmod(within, stages)
    micro_batch = group * stages + member
    parts = stages * chunks
    forward = (chunk * stages + stage) * micro_batches + micro_batch
    backward = (parts + (chunks - 1 - chunk) * stages + stage) * micro_batches + micro_batch
    return _alternating(forward, backward, 2 * (stages - stage - 1) + (chunks - 1) * stages)


SCHEDULES: Mapping[str, Callable[[int, int, int, int], Integers]] = {
    "gpipe": _gpipe,
    ONE_FORWARD_ONE_BACKWARD: _one_forward_one_backward,
    INTERLEAVED: _interleave,
}
"""Functions from (stage, stages, micro-batches, chunks) to the order of passes of a stage."""


def peak_in_flight(schedule: PipelineSchedule) -> tuple[int, ...]:
    """Maximum number of saved activations of each device: forward passes without their backward pass.

    GPipe: m. 1F1B: min(p - stage, m). With v chunks each counts for one chunk, 1/v of the device's layers.
    """
    forward = schedule.order < schedule.parts * schedule.micro_batches
    held = np.cumsum(np.where(forward, 1, -1), axis=1)
    return tuple(int(peak) for peak in held.max(axis=1))


def bubble_share(stages: int, micro_batches: int, chunks: int = 1) -> float:
    """Share of idle time of a device, (p - 1) / (v m + p - 1), for equal parts and free transfers.

    For all three schedules; v = 1 for GPipe and 1F1B. Reference: Narayanan et al., SC 2021, section 2.2
    (there relative to the ideal time, (p - 1) / (v m)).
    """
    return (stages - 1) / (chunks * micro_batches + stages - 1)


def even_pipeline_seconds(
    forward_seconds: float, backward_seconds: float, stages: int, micro_batches: int, chunks: int = 1
) -> float:
    """Time of a pipeline with equal parts and free transfers: (v m + p - 1)(f + b).

    f and b are of one micro-batch through one part (1/v of a device's layers).
    """
    return (chunks * micro_batches + stages - 1) * (forward_seconds + backward_seconds)


def dependencies(schedule: PipelineSchedule) -> tuple[Dependency, ...]:
    """Dependencies between slots, in addition to the order of each device."""
    before, boundary = _waits(schedule)
    nothing = 2 * schedule.parts * schedule.micro_batches
    return tuple(
        Dependency(
            schedule.slot(earlier),
            schedule.slot(number),
            None if boundary[number] < 0 else int(boundary[number]),
        )
        for number, earlier in enumerate(before.tolist()[:nothing])
        if earlier != nothing
    )


def _waits(schedule: PipelineSchedule) -> tuple[Integers, Integers]:
    """For each slot the slot it waits for, and the boundary in between (-1: none).

    Two more numbers follow those of the slots: "nothing", which ends at 0, and "never", which never ends.
    """
    parts, micro_batches = schedule.parts, schedule.micro_batches
    half = parts * micro_batches
    nothing = 2 * half
    number = np.arange(half)
    part = number // micro_batches
    forward = np.where(part > 0, number - micro_batches, nothing)
    last = part == parts - 1
    backward = np.where(last, number, number + half + micro_batches)
    before = np.concatenate([forward, backward, [nothing, nothing + 1]])
    boundary = np.concatenate([part - 1, np.where(last, -1, part), [-1, -1]])
    return before, boundary


@dataclass(frozen=True, eq=False)
class PipelineRun:
    """Times of a schedule: `starts` and `ends` (stages x slots) as in `Schedule.order`, `idle` by stage."""

    seconds: float
    starts: NDArray[np.float64]
    ends: NDArray[np.float64]
    idle: NDArray[np.float64]


def pipeline_seconds(
    forward: ArrayLike, backward: ArrayLike, transfer: ArrayLike, schedule: PipelineSchedule
) -> PipelineRun:
    """The times of a schedule, from those of each part and of each transfer between neighbouring parts.

    start(slot) = max(end of the previous slot of the device, arrival of the message it waits for), where

        arrival = max(end of the sending slot, arrival of the previous message on the link) + transfer

    since messages in one direction queue. Exact for transfers that need no device time. Each round advances
    every device with a next slot that can be timed, so the number of rounds is the length of the longest
    chain, about 2 (v m + p).

    `forward` and `backward` have one entry per part (stages · chunks) in the order of the model, for one
    micro-batch; `transfer` has one per boundary between parts, for both directions. Scalars apply to all.
    """
    parts, micro_batches, stages = schedule.parts, schedule.micro_batches, schedule.stages
    times = [_per_part(forward, parts, "forward"), _per_part(backward, parts, "backward")]
    between = np.append(_per_part(transfer, parts - 1, "transfer"), 0.0)
    before, _ = _waits(schedule)
    never = len(before) - 1
    seconds = np.append(np.repeat(np.concatenate(times), micro_batches), [0.0, 0.0])
    lag = np.append(np.repeat(np.append(between, np.roll(between, 1)), micro_batches), [0.0, 0.0])
    part = np.arange(parts)
    sends = np.append(np.repeat(np.append(part < parts - 1, part > 0), micro_batches), [False, False])
    ended = np.full(never + 1, np.nan)
    arrived = np.full(never + 1, np.nan)
    arrived[never - 1] = 0.0
    order = np.concatenate([schedule.order, np.full((stages, 1), never)], axis=1)
    flat, at = order.ravel(), np.arange(stages) * order.shape[1]
    free = np.zeros(stages)
    forward_lane, sent = np.arange(stages), np.zeros(2 * stages)
    left = schedule.order.size
    while left:
        slot = flat[at]
        end = np.maximum(free, arrived[before[slot]]) + seconds[slot]
        ended[slot] = end
        lane = forward_lane + np.where(slot < parts * micro_batches, 0, stages)
        arrived[slot] = np.where(sends[slot], np.maximum(end, sent[lane]) + lag[slot], end)
        sent[lane] = np.where(sends[slot], np.fmax(sent[lane], arrived[slot]), sent[lane])
        done = ~np.isnan(end)
        advanced = int(np.count_nonzero(done))
        assert advanced, "the schedule deadlocks"
        at += done
        free = np.fmax(free, end)
        left -= advanced
    ends = ended[schedule.order]
    busy = seconds[schedule.order]
    total = float(ends.max())
    return PipelineRun(total, ends - busy, ends, total - busy.sum(axis=1))


def _per_part(times: ArrayLike, count: int, what: str) -> NDArray[np.float64]:
    given = np.asarray(times, dtype=np.float64)
    if given.ndim and given.shape != (count,):
        raise InvalidRequest(
            f"{what} times must have {count} entries, or be one number for all, got shape {given.shape}"
        )
    if given.size and not (np.isfinite(given).all() and given.min() >= 0):
        raise InvalidRequest(f"{what} times must be finite and not negative")
    return np.broadcast_to(given, (count,))


SEND = "send"
"""The kind of tasks that are messages."""


def pipeline_tasks(
    order: PipelineSchedule,
    forward: Sequence[float],
    backward: Sequence[float],
    transfer: Sequence[float],
    rendezvous: bool = False,
) -> list[Task]:
    """The tasks of one step without its update; times by part of the model, transfers by boundary.

    Messages in one direction queue for the link; the two directions are independent.
    """
    replay = _Replay(order, {Phase.FORWARD: forward, Phase.BACKWARD: backward}, transfer, rendezvous)
    pending = [list(slots) for slots in order]
    while any(pending):
        for slots in pending:
            while slots and replay.place(slots[0]):
                slots.pop(0)
    return replay.tasks


class _Replay:
    """Lists tasks, each after those it depends on."""

    def __init__(
        self,
        order: PipelineSchedule,
        costs: dict[Phase, Sequence[float]],
        transfer: Sequence[float],
        rendezvous: bool,
    ) -> None:
        self.tasks: list[Task] = []
        self._order, self._costs, self._transfer, self._rendezvous = order, costs, transfer, rendezvous
        self._wait = {wait.after: wait for wait in dependencies(order)}
        self._message = {wait.before: wait for wait in self._wait.values() if wait.boundary is not None}
        self._previous = {after: before for slots in order for before, after in pairwise(slots)}
        self._passes: dict[Slot, int] = {}
        self._sent: dict[Slot, int] = {}

    def place(self, slot: Slot) -> bool:
        """List a pass if all it depends on is listed; returns whether it was."""
        after = self._ready(slot)
        if after is None:
            return False
        self._passes[slot] = len(self.tasks)
        seconds = self._costs[slot.phase][slot.chunk * self._order.stages + slot.stage]
        name = f"{slot.phase} micro-batch {slot.micro_batch + 1}"
        self.tasks.append(Task(name, Stream(slot.stage, COMPUTE), seconds, after, kind=slot.phase))
        return True

    def _ready(self, slot: Slot) -> tuple[int, ...] | None:
        """The tasks a pass depends on; None if one of them cannot be listed yet."""
        needed: list[int | None] = []
        wait = self._wait.get(slot)
        if wait is not None:
            needed.append(self._passes.get(wait.before) if wait.boundary is None else self._send(wait))
        previous = self._previous.get(slot)
        if self._rendezvous and previous in self._message and previous.phase is not slot.phase:
            needed.append(self._send(self._message[previous]))
        listed = [index for index in needed if index is not None]
        return tuple(listed) if len(listed) == len(needed) else None

    def _send(self, wait: Dependency) -> int | None:
        """The task of a message, listed now if all it depends on is listed; otherwise None."""
        if wait.before in self._sent:
            return self._sent[wait.before]
        sides = [wait.before]
        if self._rendezvous and wait.after in self._previous:
            sides.append(self._previous[wait.after])
        if any(side not in self._passes for side in sides):
            return None
        assert wait.boundary is not None
        lane = Stream(wait.before.stage, f"{wait.after.phase} to stage {wait.after.stage}")
        after = tuple(self._passes[side] for side in sides)
        self._sent[wait.before] = len(self.tasks)
        name, seconds = f"send {wait.boundary}", self._transfer[wait.boundary]
        self.tasks.append(Task(name, lane, seconds, after, kind=SEND))
        return self._sent[wait.before]
