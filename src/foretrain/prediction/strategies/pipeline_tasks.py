"""A pipeline's schedule as tasks on streams: passes on each stage, messages between neighbours.

`pipeline_seconds` is quicker and tells the same times where each stage has a device of its own; tasks can
also be run where stages share processors (`prediction.shared_cores`).
"""

from __future__ import annotations

from collections.abc import Sequence

from foretrain.prediction.strategies.pipeline_schedules import Schedule, Slot, dependencies
from foretrain.prediction.timeline import COMPUTE, Stream, Task
from foretrain.workloads.graph import Phase

SEND = "send"
"""The kind of the tasks that are messages."""


def pipeline_tasks(
    order: Schedule, forward: Sequence[float], backward: Sequence[float], transfer: Sequence[float]
) -> list[Task]:
    """The tasks of one step without its update; times by part of the model, transfers by boundary.

    A message occupies a lane of its own for each direction, so messages one way queue and ways do not.
    """
    waits = {wait.after: wait for wait in dependencies(order)}
    costs = {Phase.FORWARD: forward, Phase.BACKWARD: backward}
    tasks: list[Task] = []
    place: dict[Slot, int] = {}
    for slot in _in_order(order, {slot: wait.before for slot, wait in waits.items()}):
        after: tuple[int, ...] = ()
        wait = waits.get(slot)
        if wait is not None:
            after = (place[wait.before],)
            if wait.boundary is not None:
                lane = Stream(wait.before.stage, f"{slot.phase} to stage {slot.stage}")
                tasks.append(Task(f"send {wait.boundary}", lane, transfer[wait.boundary], after, kind=SEND))
                after = (len(tasks) - 1,)
        place[slot] = len(tasks)
        seconds = costs[slot.phase][slot.chunk * order.stages + slot.stage]
        name = f"{slot.phase} micro-batch {slot.micro_batch + 1}"
        tasks.append(Task(name, Stream(slot.stage, COMPUTE), seconds, after, kind=slot.phase))
    return tasks


def _in_order(order: Schedule, before: dict[Slot, Slot]) -> list[Slot]:
    """All slots, each after the one it waits for and after those before it on its device."""
    pending = [list(slots) for slots in order]
    listed: dict[Slot, None] = {}
    while any(pending):
        for slots in pending:
            while slots and (slots[0] not in before or before[slots[0]] in listed):
                listed[slots.pop(0)] = None
    return list(listed)
