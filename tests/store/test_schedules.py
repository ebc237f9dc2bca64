"""Schedules in the store, in both databases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from foretrain.backends.records import JobRecord, new_head, origin_of
from foretrain.scheduling.problem import NodeType, Problem, elastic
from foretrain.store.schedules import open_schedules

PROBLEM = Problem((), elastic([NodeType(name="one", gpu="a100", gpus=1, usd_per_hour=1.0)], 1))
ATTEMPT: dict[str, Any] = {
    "key": "k-0-1", "job": "a", "number": 1, "state": "starting", "node_type": "one", "gpus": 1,
    "nodes": (0,), "hosts": ("x",), "devices": ((0,),), "handle": None, "started_seconds": 1.5, "message": "",
}  # fmt: skip


def test_what_is_changed_together_is_read_back(url: str) -> None:
    store = open_schedules(url)
    head = new_head("mine", "local", "fifo", Path("/tmp/x"), PROBLEM)
    store.add(head)
    with store.changing(head["id"]) as change:
        change.head(last_seconds=2.0, hosts={"0": "x"})
        change.job(JobRecord("a", starts=1).row())
        change.attempt(ATTEMPT)
    with store.changing(head["id"]) as change:
        change.job(JobRecord("a", status="completed", starts=1, finish_seconds=9.0).row())
        change.attempt({**ATTEMPT, "state": "started", "handle": {"job": "17"}})
    stored = store.schedule("mine")
    assert stored is not None
    assert (stored.head["last_seconds"], stored.head["hosts"]) == (2.0, {"0": "x"})
    assert origin_of(stored.head).monotonic == head["origin_seconds"]
    assert [(row["job"], row["status"], row["finish_seconds"]) for row in stored.jobs] == [
        ("a", "completed", 9)
    ]
    assert [(row["state"], row["handle"], row["devices"]) for row in stored.attempts] == [
        ("started", {"job": "17"}, [[0]])
    ]


def test_a_change_that_fails_changes_nothing(url: str) -> None:
    store = open_schedules(url)
    head = new_head("mine", "local", "fifo", Path("/tmp/x"), PROBLEM)
    store.add(head)

    def change_and_fail() -> None:
        with store.changing(head["id"]) as change:
            change.job(JobRecord("a").row())
            raise RuntimeError("killed here")

    with pytest.raises(RuntimeError, match="killed here"):
        change_and_fail()
    stored = store.schedule("mine")
    assert stored is not None
    assert stored.jobs == ()


def test_a_deleted_schedule_leaves_nothing(url: str) -> None:
    store = open_schedules(url)
    head = new_head("mine", "local", "fifo", Path("/tmp/x"), PROBLEM)
    store.add(head)
    with store.changing(head["id"]) as change:
        change.attempt(ATTEMPT)
    assert store.names() == ("mine",)
    store.delete("mine")
    assert store.schedule("mine") is None
    assert store.names() == ()
