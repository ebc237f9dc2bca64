"""What every backend must do, simulated or real: run all jobs once, stop and resume them, and bill each
node.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import pytest

from foretrain.scheduling.accounting import JobStatus, Outcome
from foretrain.scheduling.loop import Backend, Decision, Event, EventKind, LoopTurn, NodeLoad, Policy, drive
from foretrain.scheduling.policies.rules import Fifo
from foretrain.scheduling.problem import Configuration, NodeType, Problem, SubmittedJob, Switching, elastic
from foretrain.scheduling.state import State

NODE = NodeType(name="pair", gpu="a100", gpus=2, usd_per_hour=3600)
ONE, TWO = Configuration("pair", 1), Configuration("pair", 2)


class Answering(Protocol):
    """A backend that states what became of its jobs."""

    def next_event(self) -> Event | None:
        """The next event."""

    def state(self) -> State:
        """The state."""

    def apply(self, decision: Decision) -> None:
        """Carry out a decision."""

    def outcome(self, policy: str) -> Outcome:
        """What became of all jobs."""


class BackendSuite(ABC):
    """Inherit it, and say how jobs of `job_seconds` run on nodes with two GPUs of the type `pair`."""

    job_seconds: float = 1.0

    @abstractmethod
    def backend(self, problem: Problem, folder: Path) -> AbstractContextManager[Answering]:
        """A backend that runs a problem; it may keep files in `folder`.

        A job takes about `job_seconds`, reports its progress and can be stopped and resumed.
        """

    def job(self, number: int, submit: float, *configurations: Configuration) -> SubmittedJob:
        """One of the suite's jobs."""
        return SubmittedJob(
            name=f"job {number}",
            submit_seconds=submit,
            deadline_seconds=submit + 100 * self.job_seconds,
            weight_usd_per_second=1.0,
            seconds=dict.fromkeys(configurations or (ONE, TWO), self.job_seconds),
            switching=Switching(start_seconds=0.1),
        )

    def test_without_jobs_nothing_happens(self, tmp_path: Path) -> None:
        """The first event is None."""
        with self.backend(Problem((), elastic([NODE], 2)), tmp_path) as backend:
            assert backend.next_event() is None
            assert backend.outcome("none").total_usd == 0

    def test_every_job_that_fits_completes_once_and_is_billed(self, tmp_path: Path) -> None:
        """Three jobs on two nodes, and one that fits nowhere."""
        wide = self.job(9, 0.0, Configuration("octet", 8))
        jobs = (*(self.job(number, number * 0.1) for number in range(3)), wide)
        with self.backend(Problem(jobs, elastic([NODE], 2)), tmp_path) as backend:
            drive(_as_backend(backend), Fifo(), _check_step)
            outcome = backend.outcome("fifo")
        statuses = {each.job: each.status for each in outcome.jobs}
        assert statuses.pop("job 9") is JobStatus.REJECTED
        assert statuses == {f"job {number}": JobStatus.COMPLETED for number in range(3)}
        assert all(each.starts == 1 for each in outcome.completed)
        _check_bill(outcome)

    def test_a_job_is_stopped_resumed_and_resized_without_losing_work(self, tmp_path: Path) -> None:
        """A job makes room for another one, and goes on afterwards with two GPUs."""
        problem = Problem((self.job(0, 0.0), self.job(1, 0.1)), elastic([NODE], 1))
        lefts: list[float] = []

        def note(step: LoopTurn) -> None:
            _check_step(step)
            job = step.state.jobs.get("job 0")
            if job is not None:
                lefts.append(job.left(step.state.now))

        with self.backend(problem, tmp_path) as backend:
            drive(_as_backend(backend), _MakeRoom(), note)
            outcome = backend.outcome("make room")
        assert [each.status for each in outcome.jobs] == [JobStatus.COMPLETED] * 2, outcome.jobs
        assert [each.starts for each in outcome.jobs] == [2, 1]
        assert lefts == sorted(lefts, reverse=True), "work was lost"
        assert 0 < lefts[-1] < 1, "the job resumed from what it had done"
        first, second = outcome.jobs
        assert second.finish_seconds is not None
        assert first.finish_seconds is not None
        assert second.finish_seconds < first.finish_seconds
        _check_bill(outcome)


class _MakeRoom(Policy):
    """The first job makes room for the second one as soon as it has done some work; two GPUs afterwards."""

    name = "make-room"
    summary = "For the suite: the first job makes room for the second."

    def decide(self, state: State) -> Decision:
        """One job runs at a time."""
        first, second = state.jobs.get("job 0"), state.jobs.get("job 1")
        chosen = first if second is None or (first is not None and first.left(state.now) == 1) else second
        if chosen is None:
            return Decision()
        if chosen.running is not None:
            gpus = chosen.running.configuration.gpus
        else:
            gpus = 1 if chosen.starts == 0 else 2
        wake_at = state.now + 0.05 if chosen is first and second is not None else None
        return Decision((NodeLoad(0, "pair", ((chosen.job.name, gpus),)),), wake_at=wake_at)


def _as_backend(backend: Answering) -> Backend:
    assert isinstance(backend, Backend)
    return backend


def _check_step(step: LoopTurn) -> None:
    """Nodes hold what jobs say they use, and no more than they have."""
    held: dict[str, list[int]] = defaultdict(list)
    for node in step.state.nodes.values():
        assert node.used_gpus <= step.state.fleet.types[node.node_type].gpus
        assert node.number not in step.state.lost
        for name, gpus in node.shares:
            running = step.state.jobs[name].running
            assert running is not None
            assert running.configuration == Configuration(node.node_type, gpus, len(running.nodes))
            held[name].append(node.number)
    used = {name: job.running.nodes for name, job in step.state.jobs.items() if job.running is not None}
    assert {name: tuple(sorted(nodes)) for name, nodes in held.items()} == used
    assert all(0 <= job.work_left <= 1 for job in step.state.jobs.values())
    assert step.event.kind in EventKind


def _check_bill(outcome: Outcome) -> None:
    """Each node is paid for once at any time, and jobs pay for all but idle nodes."""
    ends: dict[int, float] = {}
    for each in sorted(outcome.history, key=lambda each: each.start_seconds):
        assert each.start_seconds >= ends.get(each.node, 0.0) - 1e-9
        ends[each.node] = each.end_seconds
        price = NODE.usd_per_second * (each.end_seconds - each.start_seconds)
        assert each.usd == pytest.approx(price)
    assert outcome.execution_usd == pytest.approx(sum(each.usd for each in outcome.history))
    idle = sum(each.usd for each in outcome.history if not each.shares)
    assert sum(each.execution_usd for each in outcome.jobs) + idle == pytest.approx(outcome.execution_usd)
