"""A pipeline's schedule as tasks on streams: passes on each stage, messages between neighbours.

`pipeline_seconds` is quicker and tells the same times where each stage has a device of its own and messages
are buffered; tasks can also be run where stages share processors (`prediction.shared_cores`), and where
messages need both sides (`rendezvous`), as with gloo under `torch.distributed.pipelining`:

* a message starts once the receiver has ended the pass before the one that needs it;
* a stage that turns from forward to backward passes, or back, first waits for its own message to be sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from foretrain.prediction.strategies.pipeline_schedules import Dependency, Schedule, Slot, dependencies
from foretrain.prediction.timeline import COMPUTE, Stream, Task
from foretrain.workloads.graph import Phase

SEND = "send"
"""The kind of the tasks that are messages."""


def pipeline_tasks(
    order: Schedule,
    forward: Sequence[float],
    backward: Sequence[float],
    transfer: Sequence[float],
    rendezvous: bool = False,
) -> list[Task]:
    """The tasks of one step without its update; times by part of the model, transfers by boundary.

    Messages one way queue for the link, those of different ways do not.
    """
    replay = _Replay(order, {Phase.FORWARD: forward, Phase.BACKWARD: backward}, transfer, rendezvous)
    pending = [list(slots) for slots in order]
    while any(pending):
        for slots in pending:
            while slots and replay.place(slots[0]):
                slots.pop(0)
    return replay.tasks


class _Replay:
    """Tasks as they are listed, each after those it waits for."""

    def __init__(
        self,
        order: Schedule,
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
        """List a pass if all it waits for is listed; tells whether it was."""
        after = self._ready(slot)
        if after is None:
            return False
        self._passes[slot] = len(self.tasks)
        seconds = self._costs[slot.phase][slot.chunk * self._order.stages + slot.stage]
        name = f"{slot.phase} micro-batch {slot.micro_batch + 1}"
        self.tasks.append(Task(name, Stream(slot.stage, COMPUTE), seconds, after, kind=slot.phase))
        return True

    def _ready(self, slot: Slot) -> tuple[int, ...] | None:
        """The tasks a pass waits for; None if one of them cannot be listed yet."""
        needed: list[int | None] = []
        wait = self._wait.get(slot)
        if wait is not None:
            needed.append(self._passes.get(wait.before) if wait.boundary is None else self._send(wait))
        previous = self._previous.get(slot)
        if self._rendezvous and previous in self._message and previous.phase is not slot.phase:
            needed.append(self._send(self._message[previous]))
        found = [index for index in needed if index is not None]
        return tuple(found) if len(found) == len(needed) else None

    def _send(self, wait: Dependency) -> int | None:
        """The task of a message, listed now if what it waits for is; None if not."""
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
