"""The lower bound: by hand, against the optimum of tiny problems, and against every policy."""

from __future__ import annotations

import pytest
from tests.support.tiny_schedules import tiny_problem
from validation.scheduling_optimum import optimal_usd

from foretrain.scheduling.bound import lower_bound_usd
from foretrain.scheduling.generators import families
from foretrain.scheduling.loop import LoopTurn
from foretrain.scheduling.policies import policies
from foretrain.scheduling.problem import (
    Configuration,
    Fleet,
    NodeGroup,
    NodeType,
    Problem,
    SubmittedJob,
    elastic,
)
from foretrain.scheduling.simulation import simulate

ONE = NodeType(name="one", gpu="k80", gpus=1, usd_per_hour=3600)  # 1 USD per second
TWO = NodeType(name="two", gpu="k80", gpus=2, usd_per_hour=7200)


def job(name: str, submit: float, deadline: float, weight: float = 2.0, **seconds: float) -> SubmittedJob:
    """Seconds by node type; all its GPUs."""
    gpus = {"one": 1, "two": 2}
    return SubmittedJob(
        name=name,
        submit_seconds=submit,
        deadline_seconds=deadline,
        weight_usd_per_second=weight,
        seconds={Configuration(kind, gpus[kind]): time for kind, time in seconds.items()},
    )


def test_one_job_in_time_costs_its_execution() -> None:
    problem = Problem((job("a", 0, 20, one=10.0),), elastic([ONE], 1))
    assert lower_bound_usd(problem) == pytest.approx(10, rel=1e-5)
    assert optimal_usd(problem) == pytest.approx(10)


def test_one_job_that_must_be_late() -> None:
    problem = Problem((job("a", 5, 11, one=10.0),), elastic([ONE], 1))
    assert optimal_usd(problem) == pytest.approx(10 + 2 * 4)
    assert lower_bound_usd(problem) == pytest.approx(18, rel=1e-5)


def test_faster_nodes_are_used_as_far_as_they_pay() -> None:
    """10 s on one GPU cost 10 USD, 6 s on two 12 USD; half of the work on each: 8 s for 11 USD."""
    problem = Problem((job("a", 0, 8, weight=100.0, one=10.0, two=6.0),), elastic([ONE, TWO], 1))
    assert lower_bound_usd(problem) == pytest.approx(11, rel=1e-5)
    assert optimal_usd(problem) == pytest.approx(12), "a job changes at events only"
    assert optimal_usd(problem, grid=[3.0]) == pytest.approx(11), "3 s on two, then 5 s on one"


def test_two_jobs_on_one_node_wait_for_each_other() -> None:
    both = (job("a", 0, 10, one=10.0), job("b", 0, 10, one=10.0))
    problem = Problem(both, elastic([ONE], 1))
    assert optimal_usd(problem) == pytest.approx(20 + 2 * 10)
    assert lower_bound_usd(problem) == pytest.approx(40, rel=1e-4)


def test_groups_without_a_type_in_common_are_counted_apart() -> None:
    fleet = Fleet({"one": ONE, "two": TWO}, (NodeGroup(1, ("one",)), NodeGroup(5, ("two",))))
    both = (job("a", 0, 10, one=10.0), job("b", 0, 10, one=10.0))
    assert lower_bound_usd(Problem(both, fleet)) == pytest.approx(40, rel=1e-4)


def test_jobs_that_are_rejected_and_no_jobs_cost_nothing() -> None:
    fits_nowhere = job("a", 0, 1, two=1.0)
    assert lower_bound_usd(Problem((fits_nowhere,), elastic([ONE], 1))) == 0
    assert lower_bound_usd(Problem((), elastic([ONE], 1))) == 0


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("seed", range(6))
def test_the_bound_is_below_the_optimum_of_tiny_problems_and_near_it(seed: int, nodes: int) -> None:
    problem = tiny_problem(seed, nodes=nodes)
    optimum, bound = optimal_usd(problem), lower_bound_usd(problem)
    assert bound <= optimum * (1 + 1e-6)
    assert bound >= 0.6 * optimum


@pytest.mark.parametrize("policy", policies())
@pytest.mark.parametrize("family", ["poisson-30", "mixed", "high-scaling", "hybrid", "owned"])
def test_no_policy_costs_less_than_the_bound(family: str, policy: str) -> None:
    problem = families()[family].problem(nodes=3, seed=3, jobs_per_node=4)
    outcome = simulate(problem, policies()[policy])
    assert all(each.finish_seconds is not None for each in outcome.jobs)
    assert lower_bound_usd(problem, intervals=60) <= outcome.total_usd


@pytest.mark.parametrize("policy", policies())
def test_no_policy_costs_less_than_the_optimum_at_events(policy: str) -> None:
    """Unless it asked for other times to decide at; then only the bound holds."""
    for seed in range(3):
        problem = tiny_problem(seed)
        wake_ups: list[float] = []

        def note(step: LoopTurn, wake_ups: list[float] = wake_ups) -> None:
            wake_ups.extend(() if step.decision.wake_at is None else (step.decision.wake_at,))

        outcome = simulate(problem, policies()[policy], observe=note)
        assert lower_bound_usd(problem) <= outcome.total_usd
        assert wake_ups or optimal_usd(problem) <= outcome.total_usd * (1 + 1e-9)


def test_more_intervals_make_it_tighter() -> None:
    problem = families()["mixed"].problem(nodes=3, seed=1)
    few, many = (lower_bound_usd(problem, intervals=count) for count in (20, 150))
    assert few < many
