"""Timelines: starts and ends by hand, the algebra of spans, and what holds of any tasks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrain.prediction.timeline import (
    COMPUTE,
    HOST,
    Spans,
    Stream,
    Task,
    Timeline,
    length,
    merge_spans,
    simulate,
    without,
)

GPU, NET, LAUNCHES = Stream(0, COMPUTE), Stream(0, "dp exchange"), Stream(0, HOST)


def spans(*pairs: tuple[float, float]) -> Spans:
    return np.array(pairs, float).reshape(-1, 2)


def test_tasks_of_a_stream_follow_each_other_in_the_order_listed() -> None:
    run = simulate([Task("a", GPU, 2), Task("b", NET, 5), Task("c", GPU, 3)])
    assert run.starts.tolist() == [0, 0, 2]
    assert run.ends.tolist() == [2, 5, 5]
    assert run.seconds == 5


def test_a_task_waits_for_all_it_comes_after() -> None:
    run = simulate([Task("a", GPU, 2), Task("b", NET, 5), Task("c", GPU, 3, after=(0, 1))])
    assert run.starts[2] == 5
    assert run.ends[2] == 8


def test_gaps_and_utilisation() -> None:
    run = simulate([Task("a", GPU, 2), Task("b", NET, 6), Task("c", GPU, 2, after=(1,))])
    assert run.gaps(GPU).tolist() == [[2, 6]]
    assert run.gaps(NET).tolist() == [[6, 8]]
    assert run.utilisation(GPU) == 0.5
    assert run.utilisation(NET) == 0.75
    assert run.busy_seconds(GPU) == 4


def test_exchanges_are_exposed_where_nothing_is_computed() -> None:
    """6 s of exchange beside 2 s of computing, then 2 s more of it after: 4 s are waited for."""
    tasks = [Task("a", GPU, 2), Task("b", NET, 6), Task("c", GPU, 2, after=(1,))]
    assert simulate(tasks).exposed_seconds(0) == 4
    launching = [*tasks, Task("launch", LAUNCHES, 100)]
    assert simulate(launching).exposed_seconds(0) == 4


def test_exposed_seconds_count_overlapping_exchanges_once_and_only_those_of_the_device() -> None:
    run = simulate([Task("x", NET, 3), Task("y", Stream(0, "tp exchange"), 2), Task("z", Stream(1, "tp"), 9)])
    assert run.exposed_seconds(0) == 3
    assert run.exposed_seconds(1) == 9


def test_streams_are_listed_by_device_computing_first() -> None:
    tasks = [Task("", Stream(1, COMPUTE), 1), Task("", Stream(0, "a"), 1), Task("", Stream(0, COMPUTE), 1)]
    assert simulate(tasks).streams == (Stream(0, COMPUTE), Stream(0, "a"), Stream(1, COMPUTE))


def test_nothing_takes_no_time() -> None:
    run = simulate([])
    assert run.seconds == 0
    assert run.streams == ()
    assert run.utilisation(GPU) == 0


def test_merged_joins_what_overlaps_or_touches() -> None:
    assert merge_spans(spans((5, 6), (0, 2), (1, 3), (3, 4), (7, 7))).tolist() == [[0, 4], [5, 6]]
    assert merge_spans(spans((0, 9), (1, 2), (3, 4))).tolist() == [[0, 9]]
    assert merge_spans(spans()).tolist() == []


def test_without_leaves_what_lies_outside() -> None:
    assert without(spans((0, 10)), spans((2, 3), (5, 7))).tolist() == [[0, 2], [3, 5], [7, 10]]
    assert without(spans((0, 4), (6, 8)), spans((3, 7))).tolist() == [[0, 3], [7, 8]]
    assert without(spans((1, 2)), spans((0, 3))).tolist() == []
    assert without(spans((1, 2)), spans()).tolist() == [[1, 2]]


PAIRS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda pair: (min(pair), max(pair))), max_size=8
)


def covered(given_spans: Spans) -> set[int]:
    return {second for start, end in given_spans.tolist() for second in range(int(start), int(end))}


@given(PAIRS, PAIRS)
def test_spans_are_sets_of_seconds(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    one, other = merge_spans(spans(*left)), merge_spans(spans(*right))
    assert covered(one) == covered(spans(*left))
    assert length(one) == len(covered(one))
    assert covered(without(one, other)) == covered(one) - covered(other)
    assert (np.diff(one.ravel()) > 0).all()


@st.composite
def some_tasks(draw: st.DrawFn) -> list[Task]:
    tasks: list[Task] = []
    for index in range(draw(st.integers(0, 12))):
        stream = Stream(draw(st.integers(0, 1)), draw(st.sampled_from([COMPUTE, HOST, "dp", "tp"])))
        after = tuple(draw(st.sets(st.integers(0, index - 1), max_size=2))) if index else ()
        tasks.append(Task(str(index), stream, draw(st.integers(0, 9)), after))
    return tasks


def check(run: Timeline) -> None:
    for index, task in enumerate(run.tasks):
        assert run.ends[index] == run.starts[index] + task.seconds
        assert all(run.starts[index] >= run.ends[other] for other in task.after)
    for stream in run.streams:
        mine = [index for index, task in enumerate(run.tasks) if task.stream == stream]
        assert all(run.starts[b] >= run.ends[a] for a, b in itertools.pairwise(mine))


@given(some_tasks())
def test_any_tasks_keep_the_rules(tasks: list[Task]) -> None:
    run = simulate(tasks)
    check(run)
    for stream in run.streams:
        assert run.busy_seconds(stream) + length(run.gaps(stream)) == pytest.approx(run.seconds)
        assert 0 <= run.utilisation(stream) <= 1
    for device in (0, 1):
        exchanging = [s for s in run.streams if s.device == device and s.lane not in (COMPUTE, HOST)]
        assert run.exposed_seconds(device) <= length(run.spans(exchanging)) + 1e-9


@given(some_tasks(), st.integers(0, 11), st.integers(1, 5))
def test_a_longer_task_never_makes_a_step_shorter(tasks: list[Task], which: int, more: int) -> None:
    longer = [
        task._replace(seconds=task.seconds + more) if index == which else task
        for index, task in enumerate(tasks)
    ]
    assert simulate(longer).seconds >= simulate(tasks).seconds
