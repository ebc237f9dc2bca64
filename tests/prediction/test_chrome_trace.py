"""Chrome traces: an event by hand, and the schema of whole steps of every kind."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.hand_made_steps import gpt2, graph, parallel_step_on
from tests.support.trace_events import check_trace

from foretrain.prediction.timeline import (
    COMPUTE,
    Stream,
    Task,
    TimedOperator,
    Timeline,
    chrome_trace,
    simulate,
)

NANOSECOND = 1e-3
"""In microseconds, the unit of traces."""


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


def test_operators_lie_in_their_modules_by_hand() -> None:
    operators = (
        TimedOperator("aten.mm", "blocks.0.mlp", 3.0),
        TimedOperator("aten.view", "blocks.0.mlp", 0.0),
        TimedOperator("aten.add", "blocks.0", 1.0),
        TimedOperator("aten.sum", "", 4.0),
    )
    tasks = (Task("forward", Stream(0, COMPUTE), 16.0, kind="forward"),)
    run = Timeline(tasks, np.array([2.0]), np.array([18.0]), lambda _: operators)
    trace = chrome_trace(run, "a step")
    check_trace(trace)
    drawn = [(each["name"], each["cat"], each["ts"] / 1e6, each["dur"] / 1e6) for each in complete(trace)]
    assert drawn == [
        ("forward", "forward", 2, 16),
        ("blocks.0", "module", 2, 8),
        ("blocks.0.mlp", "module", 2, 6),
        ("aten.mm", "operator", 2, 6),
        ("aten.add", "operator", 8, 2),
        ("aten.sum", "operator", 10, 8),
    ]


@pytest.mark.parametrize("strategy", ["ddp", "pp=2,dp=2"])
def test_a_step_has_its_layers_and_operators_beside_its_exchanges(strategy: str) -> None:
    step = parallel_step_on(gpt2(), strategy, "a100-pcie-40gb:4", 4).run
    trace = chrome_trace(step.timeline, strategy)
    lanes = {
        (each["pid"], each["tid"]): each["args"]["name"]
        for each in trace["traceEvents"]
        if each["name"] == "thread_name"
    }
    inside = [each for each in complete(trace) if each["cat"] in ("module", "operator")]
    assert {lanes[each["pid"], each["tid"]] for each in inside} == {"compute"}
    assert len(set(lanes.values())) > 1
    blocks = {each["name"] for each in inside if each["cat"] == "module"}
    modules = {call.module for stage in step.stages for call in stage.graph.calls if call.module}
    assert modules <= blocks, "every layer is there"
    for task in (each for each in complete(trace) if each["cat"] in ("forward", "backward", "optimizer")):
        spent = sum(
            each["dur"]
            for each in inside
            if each["cat"] == "operator"
            and (each["pid"], each["tid"]) == (task["pid"], task["tid"])
            and task["ts"] <= each["ts"] < task["ts"] + task["dur"] - NANOSECOND
        )
        assert spent == pytest.approx(task["dur"], rel=1e-6), task["name"]


def test_the_size_is_bounded() -> None:
    run = parallel_step_on(gpt2(), "pp=2,dp=2", "a100-pcie-40gb:4", 8).run.timeline
    whole, short = chrome_trace(run, ""), chrome_trace(run, "", most_events=2_000)
    check_trace(short)
    assert len(short["traceEvents"]) <= 2_000 < len(whole["traceEvents"])
    assert "operators" not in whole["otherData"]
    assert short["otherData"]["operators"].endswith("tasks that compute: at most 2,000 events")


def complete(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in trace["traceEvents"] if each["ph"] == "X"]


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
