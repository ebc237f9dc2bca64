"""The simulated backend: an event queue, jobs that progress linearly, a ledger, and what may go otherwise.

All draws of a simulation come from one seed. The time of a job is its prediction times a factor drawn from
the interval of the prediction, one factor for all configurations, since its error lies mostly in the job.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import NamedTuple

import numpy as np

from foretrain.estimates import Z90, Quantiles
from foretrain.scheduling.accounting import (
    JobOutcome,
    JobStatus,
    Ledger,
    Outcome,
    decision_times,
    outcome_of_completed,
)
from foretrain.scheduling.loop import (
    Backend,
    Decision,
    Event,
    EventKind,
    LoopTurn,
    NodeLoad,
    Policy,
    drive,
    goes_on,
    nodes_by_job,
    place_loads,
)
from foretrain.scheduling.problem import Configuration, Market, Problem, SubmittedJob, runnable
from foretrain.scheduling.state import MONTH, JobState, NodeState, Running, State, month_of
from foretrain.units import DAY, HOUR


@dataclass(frozen=True, slots=True)
class PriceChange:
    """A new price of a node type from some time on."""

    at_seconds: float
    node_type: str
    usd_per_hour: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbances:
    """What disturbs a simulation; nothing by default."""

    seed: int = 0
    prediction_error: bool = False
    interruptions: bool = False
    failures_per_node_day: float = 0.0
    repair_seconds: float = HOUR
    price_changes: tuple[PriceChange, ...] = ()

    def draws(self) -> Draws:
        """The random numbers of one simulation."""
        return Draws(self, np.random.default_rng(self.seed))


@dataclass(frozen=True, slots=True)
class Draws:
    """Random numbers of one simulation, drawn in its order of events."""

    disturbances: Disturbances
    generator: np.random.Generator

    def pace(self, job: SubmittedJob) -> float:
        """Actual over predicted time of a job; depends on the job's name, not on the order of jobs."""
        if not self.disturbances.prediction_error:
            return 1.0
        own = np.random.default_rng([self.disturbances.seed, *job.name.encode()])
        return factor_at(job.spread, float(own.standard_normal()))

    def seconds_to_interruption(self, interruptions_per_hour: float) -> float:
        """How long a spot node stays."""
        if not (self.disturbances.interruptions and interruptions_per_hour > 0):
            return math.inf
        return float(self.generator.exponential(HOUR / interruptions_per_hour))

    def seconds_to_failure(self) -> float:
        """How long a node that is switched on works."""
        rate = self.disturbances.failures_per_node_day
        return float(self.generator.exponential(DAY / rate)) if rate > 0 else math.inf


def factor_at(spread: Quantiles, normal: float) -> float:
    """The factor at a point of the standard normal distribution: log-normal to each side of the median."""
    ratio = (spread.p90 / spread.p50) if normal > 0 else (spread.p50 / max(spread.p10, 1e-9 * spread.p50))
    return math.exp(math.log(max(ratio, 1.0)) / Z90 * normal)


_SOON = 1e-6
"""Seconds within which events happen at once."""
_MOST_IDLE_DECISIONS = 10_000
"""Decisions in a row with every node off after which the passing of time is no reason for another one."""


class _Due(NamedTuple):
    """A future event. `mark` detects events that no longer matter: the start of a job, the time its node was
    switched on, the number of a decision. For a change of price it is the new price.
    """

    seconds: float
    order: int
    kind: EventKind
    subject: str = ""
    node: int = -1
    mark: float = 0.0


class Simulation(Backend):
    """Jobs of a problem on its fleet, with time that jumps from event to event.

    `every_seconds` asks for a decision at least that often while jobs are active.
    """

    def __init__(
        self,
        problem: Problem,
        disturbances: Disturbances | None = None,
        every_seconds: float = math.inf,
        keeps_history: bool = True,
    ) -> None:
        self.ledger = Ledger(keeps_history)
        self.outcomes: dict[str, JobOutcome] = {}
        self._problem = problem
        self._fleet = problem.fleet
        self._draws = (disturbances or Disturbances()).draws()
        self._every = every_seconds
        self._now = min((job.submit_seconds for job in problem.jobs), default=0.0)
        self._jobs: dict[str, JobState] = {}
        self._nodes: dict[int, NodeState] = {}
        self._charged_to: dict[int, float] = {}
        self._lost: set[int] = set()
        self._first_start: dict[str, float] = {}
        self._spent_by_user: dict[str, float] = {}
        self._decision = 0
        self._idle_decisions = 0
        self._order = count()
        self._queue: list[_Due] = []
        self._next_job = 0
        self._snapshot: State | None = None
        for change in self._draws.disturbances.price_changes:
            self._push(change.at_seconds, EventKind.PRICE_CHANGED, change.node_type, mark=change.usd_per_hour)

    @classmethod
    def resumed(
        cls,
        state: State,
        submissions: tuple[SubmittedJob, ...] = (),
        disturbances: Disturbances | None = None,
    ) -> Simulation:
        """A simulation that goes on from a state with these submissions to come, and with a new ledger."""
        simulation = cls(Problem(submissions, state.fleet, state.caps), disturbances, keeps_history=False)
        simulation._now = state.now
        simulation._jobs = dict(state.jobs)
        simulation._nodes = dict(state.nodes)
        simulation._charged_to = dict.fromkeys(state.nodes, state.now)
        simulation._lost = set(state.lost)
        simulation._spent_by_user = dict(state.spent_by_user)
        simulation.ledger.usd_by_month[month_of(state.now)] = state.spent_this_month
        for name, job in state.jobs.items():
            simulation._first_start[name] = state.now
            simulation.ledger.usd_by_job[name] = job.spent_usd
            if job.running is not None:
                begin = max(job.counted_at, job.running.progress_from)
                end = begin + job.work_left * job.full_seconds(job.running.configuration)
                simulation._push(max(end, state.now), EventKind.COMPLETED, name, mark=job.starts)
        return simulation

    # ------------------------------------------------------------ the three verbs of a backend

    def next_event(self) -> Event | None:
        """Jump to the next event; all events of that moment happen."""
        first: Event | None = None
        while True:
            moment = self._next_moment()
            if moment is None or (first is not None and moment > self._now + _SOON):
                return first
            self._now = max(self._now, moment)
            event = self._happen()
            self._snapshot = None
            first = first or event

    def state(self) -> State:
        """A snapshot, the same one until something happens."""
        if self._snapshot is None:
            self._snapshot = self._state()
        return self._snapshot

    def _state(self) -> State:
        return State(
            now=self._now,
            fleet=self._fleet,
            jobs=dict(self._jobs),
            nodes=dict(self._nodes),
            lost=frozenset(self._lost),
            caps=self._problem.caps,
            spent_by_user=dict(self._spent_by_user),
            spent_this_month=self.ledger.usd_by_month.get(month_of(self._now), 0.0),
        )

    def apply(self, decision: Decision) -> None:
        """Start, stop, move and resize jobs; switch nodes on and off."""
        self._decision += 1
        loads = place_loads(self.state(), decision)
        self._snapshot = None
        affected = self._affected(loads)
        before = {name: self._jobs[name].running for name in affected if name in self._jobs}
        where = nodes_by_job({node: load for node, load in loads.items() if load.shares[0][0] in affected})
        for name, running in before.items():
            goes = running is not None and running.nodes == where.get(name, ())
            if running is not None and not (goes and goes_on(running, name, loads)):
                self._stop(name)
        self._switch_nodes(loads)
        for name, nodes in where.items():
            if self._jobs[name].running is None:
                self._start(name, nodes, before.get(name))
        self._ask_again(decision)

    def _affected(self, loads: Mapping[int, NodeLoad]) -> dict[str, None]:
        """Jobs on nodes that change, before or after."""
        names: dict[str, None] = {}
        for number, node in self._nodes.items():
            load = loads.get(number)
            if load is None or load.node_type != node.node_type or load.shares != node.shares:
                names.update(dict.fromkeys(name for name, _ in node.shares))
        for number, load in loads.items():
            known = self._nodes.get(number)
            if known is None or known.node_type != load.node_type or known.shares != load.shares:
                names.update(dict.fromkeys(name for name, _ in load.shares))
        return names

    def _ask_again(self, decision: Decision) -> None:
        is_idle = self._idle_decisions >= _MOST_IDLE_DECISIONS
        if decision.wake_at is not None and decision.wake_at > self._now + _SOON and not is_idle:
            self._push(decision.wake_at, EventKind.WOKEN, mark=self._decision)
        self._idle_decisions = 0 if self._nodes else self._idle_decisions + 1
        if not self._jobs or self._idle_decisions > _MOST_IDLE_DECISIONS:
            return
        if math.isfinite(self._every):
            self._push(self._now + self._every, EventKind.ELAPSED, mark=self._decision)
        spent = self.ledger.usd_by_month.get(month_of(self._now), 0.0)
        if math.isfinite(self._problem.caps.month_usd) and (spent > 0 or self._nodes):
            self._push((month_of(self._now) + 1) * MONTH, EventKind.ELAPSED, mark=self._decision)

    # ------------------------------------------------------------ events

    def _push(
        self, seconds: float, kind: EventKind, subject: str = "", node: int = -1, mark: float = 0.0
    ) -> None:
        heapq.heappush(self._queue, _Due(seconds, next(self._order), kind, subject, node, mark))

    def _next_moment(self) -> float | None:
        while self._queue and not self._is_current(self._queue[0]):
            heapq.heappop(self._queue)
        jobs = self._problem.jobs
        submission = jobs[self._next_job].submit_seconds if self._next_job < len(jobs) else math.inf
        if not self._jobs and not math.isfinite(submission):
            return None  # what else may happen concerns no job
        other = self._queue[0][0] if self._queue else math.inf
        moment = min(submission, other)
        return moment if math.isfinite(moment) else None

    def _is_current(self, due: _Due) -> bool:
        """Whether an event still concerns the present: the job goes on, the node is still on."""
        if due.kind is EventKind.COMPLETED:
            job = self._jobs.get(due.subject)
            return job is not None and job.running is not None and job.starts == due.mark
        if due.kind in (EventKind.FAILED, EventKind.INTERRUPTED):
            return due.node in self._nodes and self._nodes[due.node].on_since == due.mark
        if due.kind in (EventKind.WOKEN, EventKind.ELAPSED):
            return due.mark == self._decision
        return True

    def _happen(self) -> Event:
        """Let the earliest event happen."""
        jobs = self._problem.jobs
        if self._next_job < len(jobs) and (
            not self._queue or jobs[self._next_job].submit_seconds <= self._queue[0][0]
        ):
            job = jobs[self._next_job]
            self._next_job += 1
            self._submit(job)
            return Event(self._now, EventKind.SUBMITTED, job.name)
        due = heapq.heappop(self._queue)
        if due.kind is EventKind.COMPLETED:
            self._complete(due.subject)
        elif due.kind is EventKind.FAILED:
            self._fail(due.node)
        elif due.kind is EventKind.INTERRUPTED:
            self._lose(due.node)
        elif due.kind is EventKind.REPAIRED:
            self._lost.discard(due.node)
        elif due.kind is EventKind.PRICE_CHANGED:
            self._change_price(due.subject, due.mark)
        return Event(self._now, due.kind, due.subject or (str(due.node) if due.node >= 0 else ""))

    def _submit(self, job: SubmittedJob) -> None:
        configurations = runnable(job, self._fleet)
        if not configurations:
            self._reject(job, "fits on no node of the fleet")
            return
        state = JobState(job, counted_at=self._now)
        if math.isfinite(job.budget_usd):
            cheapest = min(self._state().finish_usd(state, each) for each in configurations)
            if cheapest > job.budget_usd:
                self._reject(
                    job, f"costs at least {cheapest:.2f} USD, its budget is {job.budget_usd:.2f} USD"
                )
                return
        self._jobs[job.name] = state

    def _reject(self, job: SubmittedJob, message: str) -> None:
        self.outcomes[job.name] = JobOutcome(
            job=job.name,
            status=JobStatus.REJECTED,
            submit_seconds=job.submit_seconds,
            deadline_seconds=job.deadline_seconds,
            message=message,
        )

    def _complete(self, name: str) -> None:
        self._stop(name)
        state = self._jobs.pop(name)
        start = self._first_start.pop(name)
        self.outcomes[name] = outcome_of_completed(state.job, start, self._now, self.ledger, state.starts)
        self.ledger.usd_by_job.pop(name, None)
        self.ledger.gpu_seconds_by_job.pop(name, None)

    def _fail(self, node: int) -> None:
        self._lose(node)
        self._lost.add(node)
        repaired = self._now + self._draws.disturbances.repair_seconds
        self._push(repaired, EventKind.REPAIRED, node=node)

    def _change_price(self, node_type: str, usd_per_hour: float) -> None:
        for node in self._nodes:
            self._charge(node)
        self._fleet = self._fleet.with_price(node_type, usd_per_hour)

    def _lose(self, node: int) -> None:
        """A node is gone: its jobs stop and lose their work since the last checkpoint."""
        for name, _ in self._nodes[node].shares:
            job = self._jobs[name]
            assert job.running is not None
            every = job.job.switching.checkpoint_every_seconds
            worked = max(0.0, self._now - job.running.progress_from)
            lost = worked % every if every > 0 else 0.0
            again = lost / job.full_seconds(job.running.configuration)
            self._stop(name)
            self._jobs[name] = replace(
                self._jobs[name], work_left=min(1.0, self._jobs[name].work_left + again)
            )
        self._switch_off(node)

    # ------------------------------------------------------------ jobs and nodes

    def _stop(self, name: str) -> None:
        """A job stops, on all its nodes; these stay on until the next decision."""
        job = self._jobs[name]
        assert job.running is not None
        for node in job.running.nodes:
            self._charge(node)
            shares = tuple(each for each in self._nodes[node].shares if each[0] != name)
            self._nodes[node] = replace(self._nodes[node], shares=shares)
        self._jobs[name] = replace(
            self._jobs[name],
            work_left=job.left(self._now),
            counted_at=self._now,
            running=None,
            run_seconds=job.run_seconds + self._now - job.running.started_seconds,
        )

    def _start(self, name: str, nodes: tuple[int, ...], before: Running | None) -> None:
        job = self._jobs[name]
        first = self._nodes[nodes[0]]
        gpus = dict(first.shares)[name]
        configuration = Configuration(first.node_type, gpus, len(nodes))
        same_node = before is not None and before.nodes == nodes
        startup = self._fleet.types[first.node_type].startup_seconds
        ready = max(self._now, *(self._nodes[node].on_since + startup for node in nodes))
        started = replace(
            job,
            counted_at=self._now,
            pace=self._draws.pace(job.job),
            running=Running(
                nodes, configuration, self._now, ready + job.overhead_seconds(configuration, same_node)
            ),
            starts=job.starts + 1,
        )
        self._jobs[name] = started
        self._first_start.setdefault(name, self._now)
        assert started.running is not None
        end = started.running.progress_from + started.work_left * started.full_seconds(configuration)
        self._push(end, EventKind.COMPLETED, name, mark=started.starts)

    def _switch_nodes(self, loads: Mapping[int, NodeLoad]) -> None:
        for node in [each for each in self._nodes if each not in loads]:
            self._switch_off(node)
        for node, load in loads.items():
            state = self._nodes.get(node)
            if state is not None and state.node_type != load.node_type:
                self._switch_off(node)
                state = None
            if state is None:
                self._switch_on(node, load)
            elif state.shares != load.shares:
                self._charge(node)
                self._nodes[node] = replace(state, shares=load.shares)

    def _switch_on(self, node: int, load: NodeLoad) -> None:
        self._nodes[node] = NodeState(node, load.node_type, self._now, load.shares)
        self._charged_to[node] = self._now
        node_type = self._fleet.types[load.node_type]
        failure = self._draws.seconds_to_failure()
        if math.isfinite(failure):
            self._push(self._now + failure, EventKind.FAILED, node=node, mark=self._now)
        rate = node_type.interruptions_per_hour if node_type.market is Market.SPOT else 0.0
        interruption = self._draws.seconds_to_interruption(rate)
        if math.isfinite(interruption):
            self._push(self._now + interruption, EventKind.INTERRUPTED, node=node, mark=self._now)

    def _switch_off(self, node: int) -> None:
        if node not in self._nodes:
            return
        self._charge(node)
        state = self._nodes.pop(node)
        del self._charged_to[node]
        self.ledger.close(state, self._fleet.types[state.node_type], self._now)

    def _charge(self, node: int) -> None:
        """Charge a node up to now, and note what its jobs have spent."""
        state, start = self._nodes[node], self._charged_to[node]
        if self._now <= start:
            return
        self.ledger.charge(state, self._fleet.types[state.node_type], start, self._now)
        self._charged_to[node] = self._now
        for name, _ in state.shares:
            job = self._jobs[name]
            spent = self.ledger.usd_by_job[name]
            if job.job.user:
                by_user = self._spent_by_user.get(job.job.user, 0.0)
                self._spent_by_user[job.job.user] = by_user + spent - job.spent_usd
            self._jobs[name] = replace(job, spent_usd=spent)

    # ------------------------------------------------------------ the answer

    def usd_so_far(self) -> float:
        """Nodes up to now, and the lateness of completed jobs."""
        for node in self._nodes:
            self._charge(node)
        return self.ledger.execution_usd + sum(each.tardiness_usd for each in self.outcomes.values())

    def outcome(self, policy: str, decision_seconds: Iterable[float] = ()) -> Outcome:
        """What became of all jobs; those still active are unfinished."""
        for name, job in self._jobs.items():
            self.outcomes[name] = JobOutcome(
                job=name,
                status=JobStatus.UNFINISHED,
                submit_seconds=job.job.submit_seconds,
                deadline_seconds=job.job.deadline_seconds,
                start_seconds=self._first_start.get(name),
                execution_usd=job.spent_usd,
                starts=job.starts,
                message="the policy never let it run to its end",
            )
        return Outcome(
            policy=policy,
            jobs=tuple(self.outcomes[job.name] for job in self._problem.jobs if job.name in self.outcomes),
            execution_usd=self.ledger.execution_usd,
            unused_usd=self.ledger.unused_usd,
            decisions=decision_times(list(decision_seconds)),
            history=tuple(self.ledger.history),
        )


def simulate(
    problem: Problem,
    policy: Policy,
    disturbances: Disturbances | None = None,
    every_seconds: float = math.inf,
    observe: Callable[[LoopTurn], None] = lambda _: None,
    keeps_history: bool = True,
    check: bool = True,
) -> Outcome:
    """The whole horizon of a problem under a policy."""
    simulation = Simulation(problem, disturbances, every_seconds, keeps_history)
    seconds: list[float] = []

    def note(step: LoopTurn) -> None:
        seconds.append(step.decision_seconds)
        observe(step)

    drive(simulation, policy, note, check)
    return simulation.outcome(policy.name, seconds)
