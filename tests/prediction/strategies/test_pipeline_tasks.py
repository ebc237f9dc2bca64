"""Schedules replayed as tasks take what the schedule's own timing says."""

from __future__ import annotations

import pytest

from foretrain.prediction.strategies.pipeline_schedules import pipeline_seconds, schedule
from foretrain.prediction.strategies.pipeline_tasks import SEND, pipeline_tasks
from foretrain.prediction.timeline import simulate


@pytest.mark.parametrize(("name", "chunks"), [("gpipe", 1), ("1f1b", 1), ("interleaved", 2)])
def test_tasks_take_as_long_as_the_schedule(name: str, chunks: int) -> None:
    order = schedule(name, 3, 6, chunks)
    forward = [1.0 + 0.3 * part for part in range(order.parts)]
    backward = [2.0 - 0.1 * part for part in range(order.parts)]
    transfer = [0.05 * (1 + part) for part in range(order.parts - 1)]
    tasks = pipeline_tasks(order, forward, backward, transfer)
    assert simulate(tasks).seconds == pytest.approx(
        pipeline_seconds(forward, backward, transfer, order).seconds
    )


def test_every_boundary_is_crossed_twice_by_every_micro_batch() -> None:
    tasks = pipeline_tasks(schedule("1f1b", 4, 5), [1.0] * 4, [2.0] * 4, [0.1] * 3)
    assert sum(task.kind == SEND for task in tasks) == 2 * 3 * 5
    assert len(tasks) == 2 * 3 * 5 + 2 * 4 * 5


def test_a_slow_link_makes_messages_queue() -> None:
    # one micro-batch every 3 s over the link, though each stage needs only 2 s for it
    tasks = pipeline_tasks(schedule("gpipe", 2, 3), [1.0] * 2, [1.0] * 2, [3.0])
    last_forward_ends = 1 + 3 * 3 + 1
    assert simulate(tasks).seconds == last_forward_ends + 1 + 3 * 3 + 1
