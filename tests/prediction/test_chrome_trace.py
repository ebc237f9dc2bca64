"""Chrome traces: an event by hand, and the schema of whole steps of every kind."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.hand_made_steps import gpt2, graph, parallel_step_on
from tests.support.trace_events import check_trace

from foretrain.prediction.timeline import COMPUTE, Stream, Task, Timeline, chrome_trace, simulate


def test_two_tasks_by_hand() -> None:
    run = simulate(
        [Task("forward", Stream(0, COMPUTE), 0.25, kind="forward"), Task("all-reduce", Stream(0, "dp"), 0.5)]
    )
    trace = chrome_trace(run, "a step", ("first GPU",))
    assert trace["otherData"] == {"title": "a step"}
    assert trace["traceEvents"] == [
        {"name": "process_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": "first GPU"}},
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": "compute"}},
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": 1, "args": {"name": "dp"}},
        {"name": "forward", "cat": "forward", "ph": "X", "ts": 0.0, "dur": 250_000.0, "pid": 0, "tid": 0},
        {"name": "all-reduce", "cat": "dp", "ph": "X", "ts": 0.0, "dur": 500_000.0, "pid": 0, "tid": 1},
    ]


def test_devices_without_a_name_are_numbered_and_empty_tasks_left_out() -> None:
    run = simulate([Task("nothing", Stream(3, COMPUTE), 0.0)])
    names = [event["args"]["name"] for event in chrome_trace(run, "")["traceEvents"]]
    assert names == ["device 3", "compute"]


@given(st.lists(st.floats(0, 1e-3), min_size=1, max_size=30))
def test_rounding_makes_nothing_overlap(seconds: list[float]) -> None:
    run = simulate([Task("task", Stream(0, COMPUTE), each) for each in seconds])
    check_trace(json.loads(json.dumps(chrome_trace(run, "step"))))


@pytest.mark.parametrize(
    ("strategy", "micro_batches"),
    [
        ("ddp", 1), ("ddp", 5), ("dp", 2), ("zero1", 2), ("zero3", 2), ("tp=2,dp=2", 2), ("pp=4", 1),
        ("pp=2,dp=2", 4), ("pp=2,dp=2,zero=3", 4), ("pp=2,chunks=2,dp=2", 4), ("pp=4,schedule=gpipe", 8),
        ("cp=2,dp=2", 1),
    ],
)  # fmt: skip
def test_whole_steps_follow_the_schema(strategy: str, micro_batches: int) -> None:
    run = parallel_step_on(gpt2(), strategy, "a100-pcie-40gb:4", micro_batches).run
    check_trace(json.loads(json.dumps(chrome_trace(run.timeline, strategy))))


def test_messages_longer_than_passes_do_not_overlap() -> None:
    step = parallel_step_on(graph("voice-linear", batch=64), "pp=2", "t4:1x2", 16, inter="ethernet-1g")
    check_trace(json.loads(json.dumps(chrome_trace(step.run.timeline, "slow network"))))


def test_the_check_finds_what_is_wrong() -> None:
    tasks = (Task("a", Stream(0, COMPUTE), 2.0), Task("b", Stream(0, COMPUTE), 2.0))
    overlapping = Timeline(tasks, np.array([0.0, 1.0]), np.array([2.0, 3.0]))
    with pytest.raises(AssertionError, match="overlap"):
        check_trace(chrome_trace(overlapping, ""))
    with pytest.raises(AssertionError):
        check_trace({"traceEvents": [{"ph": "B"}], "displayTimeUnit": "ms", "otherData": {}})
