"""A simulation that can be followed by hand: two jobs, one node, prices of 1 USD per second."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from foretrain.scheduling.accounting import JobStatus
from foretrain.scheduling.policies.rules import Fifo
from foretrain.scheduling.problem import Caps, Configuration, NodeType, Problem, SubmittedJob, elastic
from foretrain.scheduling.simulation import simulate
from foretrain.scheduling.state import MONTH

NODE = NodeType(name="one", gpu="k80", gpus=1, usd_per_hour=3600)


def job(name: str, submit: float, seconds: float, deadline: float, weight: float = 2.0) -> SubmittedJob:
    return SubmittedJob(
        name=name,
        submit_seconds=submit,
        deadline_seconds=deadline,
        weight_usd_per_second=weight,
        seconds={Configuration("one", 1): seconds},
    )


def test_two_jobs_one_after_the_other() -> None:
    problem = Problem((job("a", 0, 10, 12), job("b", 4, 10, 15)), elastic([NODE], max_nodes=1))
    outcome = simulate(problem, Fifo())
    assert [each.finish_seconds for each in outcome.jobs] == [10, 20]
    assert outcome.execution_usd == pytest.approx(20)  # 20 s at 1 USD/s
    assert outcome.tardiness_usd == pytest.approx(2 * 5)  # b is 5 s late
    assert outcome.late_jobs == 1
    assert outcome.makespan_seconds == 20
    assert outcome.mean_completion_seconds == pytest.approx((10 + 16) / 2)


def test_a_node_stays_on_between_two_jobs_and_is_billed_in_whole_units() -> None:
    node = replace(NODE, startup_seconds=3, billing_seconds=60)
    problem = Problem((job("a", 0, 10, 12), job("b", 4, 10, 15)), elastic([node], max_nodes=1))
    outcome = simulate(problem, Fifo())
    assert [each.finish_seconds for each in outcome.jobs] == [13, 23]  # one start of the node
    assert outcome.execution_usd == pytest.approx(60)
    assert outcome.unused_usd == pytest.approx(37)
    assert sum(each.execution_usd for each in outcome.jobs) == pytest.approx(23)


def test_a_job_that_fits_nowhere_is_reported_and_others_go_on() -> None:
    wide = replace(job("wide", 0, 1, 1), seconds={Configuration("two", 2): 1.0})
    problem = Problem((wide, job("a", 0, 10, 12)), elastic([NODE], max_nodes=1))
    outcome = simulate(problem, Fifo())
    assert [each.status for each in outcome.jobs] == [JobStatus.REJECTED, JobStatus.COMPLETED]


def test_no_jobs() -> None:
    outcome = simulate(Problem((), elastic([NODE], max_nodes=1)), Fifo())
    assert (outcome.total_usd, outcome.makespan_seconds, outcome.jobs) == (0, 0, ())


def test_rounding_is_not_lateness() -> None:
    problem = Problem((job("a", 0, 10 + 1e-7, 10),), elastic([NODE], max_nodes=1))
    outcome = simulate(problem, Fifo())
    assert (outcome.late_jobs, outcome.tardiness_usd) == (0, 0)


@pytest.mark.parametrize("caps", [Caps({"alice": 0.0}), Caps(month_usd=0.0)])
@pytest.mark.parametrize("every", [math.inf, 600.0])
def test_a_job_that_no_cap_ever_allows_is_left_unfinished(caps: Caps, every: float) -> None:
    waiting = replace(job("a", 0, 10, 12), user="alice")
    problem = Problem((waiting, job("b", 0, 10, 12)), elastic([NODE], max_nodes=1), caps)
    outcome = simulate(problem, Fifo(), every_seconds=every)
    ends = [each.status for each in outcome.jobs]
    assert ends[0] is JobStatus.UNFINISHED
    assert ends[1] is (JobStatus.UNFINISHED if caps.month_usd == 0 else JobStatus.COMPLETED)


def test_a_cap_of_the_month_makes_jobs_wait_for_the_next() -> None:
    caps = Caps(month_usd=5.0)
    problem = Problem((job("a", 0, 10, 12), job("b", 0, 10, 12)), elastic([NODE], max_nodes=1), caps)
    outcome = simulate(problem, Fifo())
    assert [each.finish_seconds for each in outcome.jobs] == [10, pytest.approx(MONTH + 10)]
