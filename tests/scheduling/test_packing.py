"""Packing: few nodes where they are scarce, cheap ones where they are not, no GPU idle that a job could
use.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from foretrain.scheduling.loop import Decision, NodeLoad, violations
from foretrain.scheduling.options import places_of
from foretrain.scheduling.packing import nodes_needed, pack
from foretrain.scheduling.problem import Configuration, Fleet, NodeType, SubmittedJob, Switching, elastic
from foretrain.scheduling.state import JobState, NodeState, Running, State

TYPES = [NodeType(name=f"n{gpus}", gpu="k80", gpus=gpus, usd_per_hour=gpus) for gpus in (1, 2, 4)]


def fleet(nodes: int) -> Fleet:
    return elastic(TYPES, nodes)


def job(name: str, **changes: object) -> SubmittedJob:
    seconds = {
        Configuration(each.name, gpus): 60.0 / gpus for each in TYPES for gpus in range(1, each.gpus + 1)
    }
    plain = SubmittedJob(
        name=name, submit_seconds=0, deadline_seconds=60, weight_usd_per_second=1, seconds=seconds
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def state(nodes: int, *names: str) -> State:
    return State(0.0, fleet(nodes), {name: JobState(job(name)) for name in names}, {})


@pytest.mark.parametrize(
    ("counts", "free", "nodes"),
    [((4, 0, 0, 0), (), 1), ((1, 0, 1, 1), (), 2), ((0, 2, 0, 1), (), 2), ((2, 1, 0, 0), (3,), 1)],
)
def test_nodes_needed(counts: tuple[int, ...], free: tuple[int, ...], nodes: int) -> None:
    assert nodes_needed(counts, 4, free) == nodes


def chosen(here: State, **gpus: int) -> list[tuple[str, int]]:
    places = places_of(here.fleet, frozenset())
    return [(name, places.gpus.tolist().index(each)) for name, each in gpus.items()]


def test_jobs_share_a_node_where_there_is_one() -> None:
    here = state(1, "a", "b")
    result = pack(here, places_of(here.fleet, frozenset()), chosen(here, a=2, b=1))
    assert result.loads == (NodeLoad(0, "n4", (("a", 2), ("b", 1))),)


def test_jobs_are_separated_where_that_is_cheaper() -> None:
    here = state(2, "a", "b")
    result = pack(here, places_of(here.fleet, frozenset()), chosen(here, a=2, b=1))
    assert sorted(load.node_type for load in result.loads) == ["n1", "n2"]


def test_idle_gpus_go_to_the_job_that_gains_most() -> None:
    here = state(1, "a", "b")

    def wider(name: str, node_type: str, gpus: int, spare: int) -> list[tuple[float, int]]:
        assert (node_type, spare) == ("n4", 1)
        return [(1.0, gpus + 1)] if name == "b" else []

    result = pack(here, places_of(here.fleet, frozenset()), chosen(here, a=2, b=1), wider)
    assert result.loads == (NodeLoad(0, "n4", (("a", 2), ("b", 2))),)


def test_jobs_without_room_are_left_out() -> None:
    here = state(1, "a", "b")
    result = pack(here, places_of(here.fleet, frozenset()), chosen(here, a=4, b=1))
    assert result.left_out == ["b"]


def test_a_job_that_may_not_be_moved_stays_and_its_node_takes_others() -> None:
    kept = job("kept", switching=Switching(movable=False))
    running = Running((0,), Configuration("n4", 2), 0.0, 0.0)
    here = State(
        1.0,
        fleet(1),
        {"kept": JobState(kept, running=running, starts=1), "a": JobState(job("a"))},
        {0: NodeState(0, "n4", 0.0, (("kept", 2),))},
    )
    result = pack(here, places_of(here.fleet, frozenset()), chosen(here, a=2))
    assert result.loads == (NodeLoad(0, "n4", (("kept", 2), ("a", 2))),)
    assert violations(here, Decision(result.loads)) == ()
