"""One decision from the present: where jobs run, when the others start, why, and what another job changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from foretrain.errors import InvalidRequest
from foretrain.estimates import Quantiles
from foretrain.scheduling.files import JobEntry, JobTimes, RunningOn, job_from, present_state
from foretrain.scheduling.forecast import Schedule, schedule, what_if
from foretrain.scheduling.policies.rules import Fifo, FifoPacked
from foretrain.scheduling.problem import Caps, Configuration, NodeType, Problem, elastic
from foretrain.scheduling.state import State

ONE = Configuration("one", 1)
FLEET = elastic([NodeType(name="one", gpu="k80", gpus=1, usd_per_hour=3600)], max_nodes=1)


def entry(name: str, submit: float = 0, deadline: float = 12, **more: Any) -> JobEntry:
    return JobEntry(
        job=name, submit_seconds=submit, deadline_seconds=deadline, weight_usd_per_second=2, **more
    )


def state_of(*entries: JobEntry, now: float = 4, spread: float = 1.0, caps: Caps | None = None) -> State:
    times = JobTimes({ONE: 10.0}, Quantiles(1 / spread, 1.0, spread))
    jobs = tuple(job_from(each, times) for each in entries)
    return present_state(Problem(jobs, FLEET, caps or Caps()), entries, now)


def half_done() -> JobEntry:
    return entry("a", done=0.5, running_on=RunningOn(ONE, (0,)), spent_usd=4.0)


def forecast_of(*entries: JobEntry, **more: Any) -> Schedule:
    return schedule(state_of(*entries, **more), Fifo())


def test_a_job_that_runs_goes_on_and_the_other_waits_for_it() -> None:
    answer = forecast_of(half_done(), entry("b", submit=4, deadline=15))
    first, second = answer.jobs
    assert (first.runs, second.runs) == (True, False)
    assert (first.nodes, first.configuration) == ((0,), ONE)
    assert first.end_seconds.p50 == pytest.approx(9)  # half of 10 s from 4 s on
    assert (second.start_seconds.p50, second.end_seconds.p50) == pytest.approx((9, 19))
    assert second.tardiness_usd.p50 == pytest.approx(2 * 4)
    assert first.execution_usd.p50 == pytest.approx(4 + 5)
    assert answer.total_usd == pytest.approx(5 + 10 + 8)
    assert second.reason.starts_when == "in 5.00 s, when a ends"
    assert "waits for GPUs" in second.reason.why
    assert "4.00 s late" in second.reason.lateness


def test_exact_times_have_no_interval() -> None:
    (first,) = forecast_of(half_done()).jobs
    assert first.end_seconds.p10 == first.end_seconds.p90
    assert first.on_time == 1


def test_intervals_come_from_drawn_times() -> None:
    answer = schedule(state_of(half_done(), entry("b", submit=4), spread=1.5), Fifo(), draws=30)
    first, second = answer.jobs
    assert 4 < first.end_seconds.p10 < 9 < first.end_seconds.p90
    assert first.end_seconds.p90 - first.end_seconds.p10 < second.end_seconds.p90 - second.end_seconds.p10
    assert answer == schedule(state_of(half_done(), entry("b", submit=4), spread=1.5), Fifo(), draws=30)


def test_what_another_job_would_change() -> None:
    without, with_it = forecast_of(half_done()), forecast_of(half_done(), entry("new", submit=4, deadline=14))
    answer = what_if(without, with_it, "new")
    assert answer.added_usd == pytest.approx(10 + 2 * 5)  # 10 s of the node, 5 s late
    assert answer.delayed == ()
    assert not answer.job.runs


def test_nothing_is_active() -> None:
    answer = forecast_of(entry("later", submit=100))
    assert (answer.jobs, answer.total_usd, dict(answer.nodes)) == ((), 0, {})


def test_a_job_without_money_to_spend_never_starts() -> None:
    state = state_of(entry("a", user="alice"), caps=Caps({"alice": 0.0}))
    (job,) = schedule(state, FifoPacked()).jobs
    assert job.start_seconds.p50 == float("inf")
    assert job.reason.starts_when == "never, as things stand"
    assert "the cap of user alice" in job.reason.why


def test_json_keys_are_stable() -> None:
    answer = forecast_of(half_done(), entry("b", submit=4)).to_dict()
    assert set(answer) == {
        "policy", "now_seconds", "nodes", "wake_at_seconds", "total_usd", "jobs", "rejected", "what_if",
        "notes",
    }  # fmt: skip
    assert answer["nodes"] == [{"node": 0, "node_type": "one", "jobs": [{"job": "a", "gpus": 1}]}]
    assert set(answer["jobs"][0]) == {
        "job", "runs", "node_type", "gpus", "nodes", "deadline_seconds", "start_seconds", "end_seconds",
        "execution_usd", "tardiness_usd", "on_time", "reason",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("entries", "complaint"),
    [
        ((half_done(), replace(half_done(), job="b")), "2 GPUs are used on a one, which has 1"),
        ((entry("a", running_on=RunningOn(ONE, (3,))),), "nodes are numbered 0 to 0"),
        ((entry("a", running_on=RunningOn(Configuration("one", 2), (0,))),), "its time there is unknown"),
        ((entry("a", submit=9, running_on=RunningOn(ONE, (0,))),), "it is not submitted, or done"),
    ],
)
def test_an_impossible_present_is_refused(entries: tuple[JobEntry, ...], complaint: str) -> None:
    with pytest.raises(InvalidRequest, match=complaint):
        state_of(*entries)
