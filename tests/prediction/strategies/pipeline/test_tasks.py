"""Schedules replayed as tasks take what the schedule's own timing says."""

from __future__ import annotations

import pytest

from foretrain.prediction.strategies.pipeline.schedules import (
    SEND,
    pipeline_seconds,
    pipeline_tasks,
    schedule,
)
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


def test_messages_that_need_both_sides_hide_behind_nothing_in_the_steady_state() -> None:
    # passes of 1 s, messages of 0.5 s, two stages, two micro-batches, F1 F2 B1 B2 on the first:
    # F1 0-1, sent until 1.5; F2 1-2; the second stage: F1 1.5-2.5, B1 2.5-3.5; then B1 goes back and F2 forth
    # at once, until 4; F2 4-5, B2 5-6, sent until 6.5, and the first stage's B2 ends at 7.5
    tasks = pipeline_tasks(schedule("1f1b", 2, 2), [1.0] * 2, [1.0] * 2, [0.5], rendezvous=True)
    assert simulate(tasks).seconds == 7.5
    buffered = pipeline_tasks(schedule("1f1b", 2, 2), [1.0] * 2, [1.0] * 2, [0.5])
    assert simulate(buffered).seconds == 7.0  # F2 had arrived before B1 ended


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_needing_both_sides_changes_nothing_where_messages_are_free(name: str) -> None:
    order = schedule(name, 4, 6)
    times = [1.0, 1.5, 0.5, 1.0], [2.0, 1.0, 3.0, 1.5], [0.0] * 3
    free = simulate(pipeline_tasks(order, *times, rendezvous=True)).seconds
    assert free == pytest.approx(pipeline_seconds(*times, order).seconds)
