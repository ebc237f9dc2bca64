"""What every scheduling policy must hold to: valid, repeatable decisions, and jobs that come to an end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import ClassVar

from foretrain.scheduling.accounting import JobStatus
from foretrain.scheduling.loop import Decision, Policy, violations
from foretrain.scheduling.problem import (
    Configuration,
    Fleet,
    Market,
    NodeGroup,
    NodeType,
    Problem,
    SubmittedJob,
    Switching,
    elastic,
)
from foretrain.scheduling.simulation import Disturbances, simulate
from foretrain.scheduling.state import JobState, NodeState, Running, State
from foretrain.testing.scheduling_states import random_problem, random_state


class PolicySuite(ABC):
    """Inherit it in a test class, and name your policies. Slow ones may try fewer random `seeds`."""

    seeds: ClassVar[Sequence[int]] = range(30)
    problem_seeds: ClassVar[Sequence[int]] = range(4)

    @abstractmethod
    def policies(self) -> Sequence[Policy]:
        """The policies to try."""

    def decisions(self, *states: State) -> Iterator[tuple[State, Policy, Decision]]:
        """What each policy decides in each state, which must be valid."""
        for policy in self.policies():
            for state in states:
                yield state, policy, decide(policy, state)

    def test_has_a_name_and_a_summary(self) -> None:
        """As listed in help texts."""
        for policy in self.policies():
            assert policy.name == policy.name.lower().strip()
            assert policy.summary.endswith(".")

    def test_random_states(self) -> None:
        """Decisions are valid whatever runs, is fixed, lost, capped or spans nodes; twice the same."""
        for policy in self.policies():
            for seed in self.seeds:
                state = random_state(Random(seed))
                decision = decide(policy, state)
                again = decide(policy, random_state(Random(seed)))
                assert again.loads == decision.loads, f"seed {seed}: not the same twice"

    def test_no_jobs(self) -> None:
        """Nothing runs."""
        for _, _, decision in self.decisions(_state([], _PLAIN)):
            assert decision.loads == ()

    def test_impossible_deadlines(self) -> None:
        """Jobs that are late already run nevertheless."""
        late = [replace(_job(number), deadline_seconds=-1e6) for number in range(5)]
        for _, _, decision in self.decisions(_state(late, _PLAIN)):
            assert decision.loads

    def test_nodes_of_one_gpu(self) -> None:
        """Each holds one job; as many jobs as nodes run, as all are in a hurry."""
        fleet = elastic([_node("one", 1)], 3)
        jobs = [_job(number, types=("one",), widths=(1,), slack=1.0) for number in range(5)]
        for _, _, decision in self.decisions(_state(jobs, fleet)):
            assert len(decision.configurations()) == 3

    def test_equal_jobs(self) -> None:
        """Ties are broken, and one of the jobs runs."""
        for _, _, decision in self.decisions(_state([_job(number) for number in range(6)], _PLAIN)):
            assert decision.loads

    def test_jobs_that_may_not_be_moved(self) -> None:
        """They go on where they are, beside whatever else runs."""
        pinned = replace(_job(0), switching=Switching(movable=False))
        running = {pinned.name: Running((1,), Configuration("four", 2), -100.0, -100.0)}
        others = [_job(number) for number in range(1, 8)]
        for _, _, decision in self.decisions(_state([pinned, *others], _PLAIN, running)):
            assert decision.configurations()[pinned.name] == Configuration("four", 2)

    def test_lost_nodes(self) -> None:
        """They are not used; if all are lost, jobs wait."""
        jobs = [_job(number) for number in range(8)]
        for lost in (frozenset({0}), frozenset({0, 1})):
            for _, _, decision in self.decisions(replace(_state(jobs, _PLAIN), lost=lost)):
                assert len(decision.loads) <= 2 - len(lost)

    def test_mixed_groups(self) -> None:
        """Each job on a kind of node it can use, in a group that has it."""
        types = {"four": _node("four", 4), "one": _node("one", 1, "m60")}
        fleet = Fleet(types, (NodeGroup(1, ("four",)), NodeGroup(2, ("one",))))
        jobs = [_job(number, types=("one",), widths=(1,), slack=1.0) for number in range(4)]
        jobs += [_job(number, types=("four",), slack=1.0) for number in range(4, 6)]
        for _, _, decision in self.decisions(_state(jobs, fleet)):
            assert {load.node_type for load in decision.loads} == {"one", "four"}

    def test_jobs_that_span_nodes(self) -> None:
        """A job that needs two nodes gets both to itself."""
        wide = replace(_job(0), seconds={Configuration("four", 4, 2): 50.0})
        for _, _, decision in self.decisions(_state([wide], _PLAIN)):
            assert decision.configurations() == {wide.name: Configuration("four", 4, 2)}

    def test_something_runs_or_a_wake_up_is_asked_for(self) -> None:
        """With nothing running, a policy that lets all jobs wait says until when: else they starve."""
        for policy in self.policies():
            for seed in self.seeds:
                state = random_state(Random(seed))
                able = any(state.configurations(job) for job in state.jobs.values())
                decision = decide(policy, state)
                assert decision.loads or decision.wake_at is not None or not able, f"seed {seed}"

    def test_all_jobs_end(self) -> None:
        """No starvation: random problems end, with failures, interruptions and wrong predictions too."""
        disturbed = Disturbances(
            seed=1, prediction_error=True, interruptions=True, failures_per_node_day=1.0, repair_seconds=600
        )
        for policy in self.policies():
            for seed in self.problem_seeds:
                problem = random_problem(Random(seed))
                for disturbances in (None, disturbed):
                    outcome = simulate(problem, policy, disturbances)
                    unfinished = [each.job for each in outcome.jobs if each.status is not JobStatus.COMPLETED]
                    assert not unfinished, f"{policy.name}, seed {seed}: {unfinished} never ended"

    def test_a_simulation_is_repeatable(self) -> None:
        """The same cost to the last digit."""
        for policy in self.policies():
            problem = random_problem(Random(self.problem_seeds[0]))
            one, other = (simulate(problem, policy) for _ in range(2))
            assert one.jobs == other.jobs
            assert one.total_usd == other.total_usd

    def test_no_jobs_to_simulate(self) -> None:
        """An empty problem costs nothing."""
        for policy in self.policies():
            assert simulate(Problem((), _PLAIN), policy).total_usd == 0


def decide(policy: Policy, state: State) -> Decision:
    """A policy's decision, which must break no rule and must leave the state as it is."""
    jobs, nodes = dict(state.jobs), dict(state.nodes)
    decision = policy.decide(state)
    broken = violations(state, decision)
    assert not broken, f"{policy.name}: {'; '.join(broken)}"
    assert (dict(state.jobs), dict(state.nodes)) == (jobs, nodes), f"{policy.name} changed the state"
    assert decision.wake_at is None or decision.wake_at > state.now, f"{policy.name} wakes in the past"
    for name, configuration in decision.configurations().items():
        allowed = state.configurations(state.jobs[name])
        assert configuration in allowed, f"{policy.name}: {name} may not use {configuration} now"
    return decision


def _node(name: str, gpus: int, gpu: str = "k80") -> NodeType:
    return NodeType(name=name, gpu=gpu, gpus=gpus, usd_per_hour=0.5 * gpus, market=Market.ON_DEMAND)


_PLAIN = elastic([_node("four", 4)], 2)


def _job(
    number: int, types: Sequence[str] = ("four",), widths: Sequence[int] = (1, 2, 4), slack: float = 2.0
) -> SubmittedJob:
    seconds = {Configuration(name, gpus): 400.0 / gpus**0.7 for name in types for gpus in widths}
    return SubmittedJob(
        name=f"job-{number}",
        submit_seconds=-200.0,
        deadline_seconds=slack * min(seconds.values()),
        weight_usd_per_second=0.01,
        seconds=seconds,
    )


def _state(jobs: Sequence[SubmittedJob], fleet: Fleet, running: dict[str, Running] | None = None) -> State:
    running = running or {}
    nodes = {
        node: NodeState(node, each.configuration.node_type, -100.0, ((name, each.configuration.gpus),))
        for name, each in running.items()
        for node in each.nodes
    }
    states = {
        job.name: JobState(job, running=running.get(job.name), starts=int(job.name in running))
        for job in jobs
    }
    return State(now=0.0, fleet=fleet, jobs=states, nodes=nodes)
