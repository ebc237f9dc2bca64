"""Price, milp and auto on problems with known answers: 1 USD per GPU-second."""

from __future__ import annotations

import ctypes
import os
from dataclasses import replace

import pytest

from foretrain.scheduling.generators import families
from foretrain.scheduling.loop import Policy
from foretrain.scheduling.outlook import Settings, look_ahead
from foretrain.scheduling.packing import room_of
from foretrain.scheduling.policies.auto import Auto, Effort, rollout_usd
from foretrain.scheduling.policies.price import (
    Milp,
    PricePolicy,
    first_step_usd,
    select,
    solve,
    without_output,
)
from foretrain.scheduling.policies.rules import EdfPacked
from foretrain.scheduling.policies.search import Greedy
from foretrain.scheduling.problem import Configuration, NodeType, Problem, SubmittedJob, elastic
from foretrain.scheduling.simulation import Simulation, simulate
from foretrain.scheduling.state import JobState, State

ONE = NodeType(name="one", gpu="k80", gpus=1, usd_per_hour=3600)
TWO = NodeType(name="two", gpu="k80", gpus=2, usd_per_hour=7200)
POLICIES: tuple[Policy, ...] = (PricePolicy(), Milp(), Auto())


def job(
    name: str, deadline: float, one: float, two: float | None = None, submit: float = 0.0
) -> SubmittedJob:
    seconds = {Configuration("one", 1): one, Configuration("two", 1): one}
    if two is not None:
        seconds[Configuration("two", 2)] = two
    return SubmittedJob(
        name=name,
        submit_seconds=submit,
        deadline_seconds=deadline,
        weight_usd_per_second=5.0,
        seconds=seconds,
    )


@pytest.mark.parametrize("policy", POLICIES, ids=lambda each: each.name)
def test_a_job_alone_follows_its_cheapest_plan(policy: Policy) -> None:
    problem = Problem((job("a", 8.0, 10.0, 6.0),), elastic([ONE, TWO], 1))
    outcome = simulate(problem, policy)
    assert outcome.late_jobs == 0
    assert outcome.total_usd == pytest.approx(11.0, rel=0.01)  # two GPUs for 3 s, one for 5 s


@pytest.mark.parametrize("policy", POLICIES, ids=lambda each: each.name)
def test_the_start_of_a_node_is_not_put_off_to_save_it(policy: Policy) -> None:
    """A node takes as long to start later: with nothing else to do, a job without haste starts at once."""
    slow = replace(ONE, startup_seconds=3.0)
    outcome = simulate(Problem((job("a", 1000.0, 10.0),), elastic([slow], 1)), policy)
    assert outcome.jobs[0].finish_seconds == pytest.approx(13.0)
    assert outcome.decisions.count == 2  # when it is submitted, and when it ends


@pytest.mark.parametrize("policy", POLICIES, ids=lambda each: each.name)
def test_of_two_late_jobs_the_shorter_runs_first(policy: Policy) -> None:
    problem = Problem((job("long", 0.0, 10.0), job("short", 0.0, 2.0)), elastic([ONE], 1))
    outcome = simulate(problem, policy)
    assert [each.finish_seconds for each in outcome.jobs] == pytest.approx([12.0, 2.0])
    assert outcome.total_usd == pytest.approx(12.0 + 5.0 * (12.0 + 2.0))


@pytest.mark.parametrize("policy", POLICIES, ids=lambda each: each.name)
def test_an_urgent_job_interrupts_one_with_time(policy: Policy) -> None:
    problem = Problem((job("patient", 30.0, 10.0), job("urgent", 7.0, 4.0, submit=3.0)), elastic([ONE], 1))
    outcome = simulate(problem, policy)
    assert outcome.late_jobs == 0
    assert outcome.total_usd == pytest.approx(14.0)


def test_waiting_jobs_have_reasons() -> None:
    jobs = (job("long", 0.0, 10.0), job("short", 0.0, 2.0))
    state = State(0.0, elastic([ONE], 1), {each.name: JobState(each) for each in jobs}, {})
    decision = PricePolicy().decide(state)
    assert list(decision.reasons) == ["long"]
    assert "other jobs save more" in decision.reasons["long"]


def crowded(family: str = "high", nodes: int = 2) -> State:
    problem = families()[family].problem(nodes, seed=7, jobs_per_node=4)
    now = problem.jobs[-1].submit_seconds
    return State(now, problem.fleet, {each.name: JobState(each, counted_at=now) for each in problem.jobs}, {})


@pytest.mark.parametrize("family", ["high", "high-scaling", "owned"])
def test_milp_is_not_worse_than_its_start_under_its_objective(family: str) -> None:
    state = crowded(family, 3)
    view = look_ahead(state, Settings())
    room = room_of(state, view.places)
    start = select(view, room)
    found, note = solve(view, room, 200)
    assert found is not None
    assert note.startswith("gap 0.0")
    best = min(first_step_usd(state, view, each) for each in (found, start))
    assert best <= first_step_usd(state, view, start)
    assert Milp().decide(state).notes[0].startswith("milp: gap")


def test_a_solver_prints_nothing_on_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    with without_output():
        ctypes.CDLL(None).puts(b"from C")
        os.write(1, b"from Python")
    os.write(1, b"after\n")
    assert capfd.readouterr() == ("after\n", "")


def test_milp_says_when_it_falls_back() -> None:
    decision = Milp(most_jobs=1).decide(crowded())
    assert decision.notes == ("milp: 8 jobs, more than 1: selection by prices",)
    assert decision.loads == PricePolicy().decide(crowded()).loads


def test_auto_keeps_the_first_proposal_unless_another_is_clearly_cheaper() -> None:
    state = crowded("high-scaling")
    costs = {
        policy.name: rollout_usd(state, policy.decide(state), PricePolicy(), 0)
        for policy in (Milp(), Greedy())
    }
    assert costs["milp"] < costs["greedy"]
    efforts = (Effort(100, 2, 0),)
    first = Auto((Milp(), Greedy()), efforts).decide(state)
    other = Auto((Greedy(), Milp()), efforts).decide(state)
    assert first.loads == other.loads == Milp().decide(state).loads
    kept = Auto((Greedy(), Milp()), efforts, margin=0.999).decide(state)
    assert kept.loads == Greedy().decide(state).loads


def test_many_jobs_are_decided_with_less_effort() -> None:
    state = crowded("high-scaling")
    few = replace(Auto(), efforts=(Effort(1, 4, 0), Effort(1000, 1, 0)))
    assert few.decide(state).loads == Milp().decide(state).loads


def test_a_simulation_goes_on_from_a_state_as_it_would_have() -> None:
    problem = families()["high"].problem(2, seed=3, jobs_per_node=3)
    whole = Simulation(problem)
    while (event := whole.next_event()) is not None and whole.state().jobs:
        state = whole.state()
        if event.subject == problem.jobs[-1].name:
            break
        whole.apply(EdfPacked().decide(state))
    resumed = Simulation.resumed(state)
    for simulation in (whole, resumed):
        simulation.apply(EdfPacked().decide(state))
        while simulation.next_event() is not None:
            simulation.apply(EdfPacked().decide(simulation.state()))
    assert 0 < resumed.ledger.execution_usd < whole.ledger.execution_usd
    for name, outcome in resumed.outcomes.items():
        assert outcome.finish_seconds == pytest.approx(whole.outcomes[name].finish_seconds)
