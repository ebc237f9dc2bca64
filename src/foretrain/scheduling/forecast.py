"""One decision from the present, and a forecast of every job: the policy goes on in the simulator.

The forecast starts from the present state with the decision that was made. It knows no future submissions.
Its middle is the course at predicted times; intervals come from courses with times drawn from the intervals
of predictions. All later decisions are made by the policy, or by the one that it names for forecasts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from foretrain.answers import Answer
from foretrain.encoding import encode
from foretrain.estimates import Quantiles
from foretrain.scheduling.decision import Decision, violations
from foretrain.scheduling.loop import EventKind, InvalidDecision, Step, drive
from foretrain.scheduling.placement import placed
from foretrain.scheduling.policies.catalogue import policies
from foretrain.scheduling.policy import Policy
from foretrain.scheduling.problem import Configuration
from foretrain.scheduling.reasons import Reason, reason_of
from foretrain.scheduling.simulation.disturbances import Disturbances, PriceChange
from foretrain.scheduling.simulation.engine import Simulation
from foretrain.scheduling.state import State
from foretrain.units import format_money


@dataclass(frozen=True)
class JobCourse:
    """What becomes of a job in one course of events; infinite where it never happens."""

    start_seconds: float
    end_seconds: float
    execution_usd: float
    tardiness_usd: float
    started_by: str = ""


@dataclass(frozen=True)
class Course:
    """One course of events from the present on."""

    jobs: Mapping[str, JobCourse]
    total_usd: float


@dataclass(frozen=True, kw_only=True)
class JobForecast:
    """What is decided and predicted of a job that is active at present.

    `configuration` and `nodes` are where it runs from now on; None and empty if it waits. `on_time` is the
    probability that it keeps its deadline.
    """

    job: str
    runs: bool
    configuration: Configuration | None
    nodes: tuple[int, ...]
    deadline_seconds: float
    start_seconds: Quantiles
    end_seconds: Quantiles
    execution_usd: Quantiles
    tardiness_usd: Quantiles
    on_time: float
    reason: Reason


@dataclass(frozen=True)
class WhatIf:
    """What a job would change if it were submitted now: its own forecast, and that of others."""

    job: JobForecast
    added_usd: float
    delayed: tuple[tuple[str, float], ...]


@dataclass(frozen=True, kw_only=True)
class Schedule(Answer):
    """One decision and the forecast of all jobs; `unfit` are jobs that fit nowhere, with the reason."""

    policy: str
    now_seconds: float
    decision: Decision
    nodes: Mapping[int, tuple[str, tuple[tuple[str, int], ...]]]
    jobs: tuple[JobForecast, ...]
    total_usd: float
    unfit: Mapping[str, str]
    what_if: WhatIf | None = None
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The contract of `foretrain schedule --json`."""
        return {
            "policy": self.policy,
            "now_seconds": self.now_seconds,
            "nodes": [
                {
                    "node": number,
                    "node_type": node_type,
                    "jobs": [{"job": job, "gpus": gpus} for job, gpus in shares],
                }
                for number, (node_type, shares) in self.nodes.items()
            ],
            "wake_at_seconds": self.decision.wake_at,
            "total_usd": self.total_usd,
            "jobs": [_plain(each) for each in self.jobs],
            "rejected": [{"job": job, "message": message} for job, message in self.unfit.items()],
            "what_if": None if self.what_if is None else _plain_what_if(self.what_if),
            "notes": list(self.notes),
        }

    def summary(self) -> tuple[tuple[str, str], ...]:
        """How many run and wait, and the cost to come."""
        running = sum(each.runs for each in self.jobs)
        return (
            ("policy", self.policy),
            ("running", f"{running} of {len(self.jobs)} jobs on {len(self.nodes)} nodes"),
            ("cost to come", format_money(self.total_usd)),
        )


def _plain(each: JobForecast) -> dict[str, Any]:
    where = each.configuration
    return {
        **{name: value for name, value in encode(each).items() if name != "configuration"},
        "node_type": None if where is None else where.node_type,
        "gpus": 0 if where is None else where.gpus,
    }


def _plain_what_if(answer: WhatIf) -> dict[str, Any]:
    return {
        "job": _plain(answer.job),
        "added_usd": answer.added_usd,
        "delayed": [{"job": job, "seconds": seconds} for job, seconds in answer.delayed],
    }


def schedule(
    state: State,
    policy: Policy,
    draws: int = 20,
    seed: int = 0,
    price_changes: tuple[PriceChange, ...] = (),
) -> Schedule:
    """Decide now, and forecast every job of the state."""
    decision = policy.decide(state)
    broken = violations(state, decision)
    if broken:
        raise InvalidDecision(f"policy {policy.name!r} made an invalid decision: {'; '.join(broken)}")
    middle = _course(state, decision, policy, Disturbances(price_changes=price_changes))
    drawn = [
        _course(
            state,
            decision,
            policy,
            Disturbances(seed=number, prediction_error=True, price_changes=price_changes),
        )
        for number in range(seed, seed + (0 if _is_exact(state) else draws))
    ]
    loads = placed(state, decision)
    where: dict[str, tuple[int, ...]] = {}
    for node in sorted(loads):
        for name, _ in loads[node].shares:
            where[name] = (*where.get(name, ()), node)
    chosen = decision.configurations()
    jobs = tuple(
        _forecast(name, state, decision, chosen.get(name), where.get(name, ()), middle, drawn)
        for name in state.jobs
    )
    return Schedule(
        policy=policy.name,
        now_seconds=state.now,
        decision=decision,
        nodes={node: (loads[node].node_type, loads[node].shares) for node in sorted(loads)},
        jobs=jobs,
        total_usd=middle.total_usd,
        unfit={},
        notes=decision.notes,
    )


def what_if(before: Schedule, after: Schedule, job: str) -> WhatIf:
    """What a job adds: `after` is the schedule with it."""
    ends = {each.job: each.end_seconds.p50 for each in before.jobs}
    delayed = [
        (each.job, each.end_seconds.p50 - ends[each.job])
        for each in after.jobs
        if each.job in ends and abs(each.end_seconds.p50 - ends[each.job]) >= 1
    ]
    own = next(each for each in after.jobs if each.job == job)
    return WhatIf(own, after.total_usd - before.total_usd, tuple(sorted(delayed, key=lambda each: -each[1])))


def _is_exact(state: State) -> bool:
    return all(each.job.spread.p10 == each.job.spread.p90 for each in state.jobs.values())


def _course(state: State, decision: Decision, policy: Policy, disturbances: Disturbances) -> Course:
    """What follows from a decision: the simulator goes on until all jobs of the state have ended."""
    if disturbances.prediction_error:
        state = _with_drawn_paces(state, disturbances)
    simulation = Simulation.resumed(state, (), disturbances)
    starts = {name: (job.running.started_seconds, "") for name, job in state.jobs.items() if job.running}
    for name in decision.configurations():
        starts.setdefault(name, (state.now, ""))

    def note(step: Step) -> None:
        for name in step.decision.configurations():
            if name not in starts:
                starts[name] = (step.event.seconds, _event_text(step))

    simulation.apply(decision)
    follower = policies()[policy.forecast_by] if policy.forecast_by else policy
    drive(simulation, follower, note)
    outcome = simulation.outcome(policy.name)
    simulated = simulation.outcomes
    jobs = {}
    for name in state.jobs:
        each, (start, event) = simulated[name], starts.get(name, (math.inf, ""))
        end = math.inf if each.finish_seconds is None else each.finish_seconds
        jobs[name] = JobCourse(start, end, each.execution_usd, each.tardiness_usd, event)
    late = sum(each.tardiness_usd for each in jobs.values())
    return Course(jobs, outcome.execution_usd + late)


def _with_drawn_paces(state: State, disturbances: Disturbances) -> State:
    """Jobs that run and were not observed yet also take a drawn time."""
    draws = disturbances.draws()
    jobs = {
        name: replace(job, pace=draws.pace(job.job)) if job.running is not None and job.pace == 1.0 else job
        for name, job in state.jobs.items()
    }
    return replace(state, jobs=jobs)


def _event_text(step: Step) -> str:
    kind, subject = step.event.kind, step.event.subject
    if kind is EventKind.COMPLETED:
        return f"{subject} ends"
    return f"{kind.value} {subject}".strip()


def _forecast(
    name: str,
    state: State,
    decision: Decision,
    configuration: Configuration | None,
    nodes: tuple[int, ...],
    middle: Course,
    drawn: list[Course],
) -> JobForecast:
    job = state.jobs[name].job
    own = middle.jobs[name]
    courses = [course.jobs[name] for course in drawn] or [own]
    return JobForecast(
        job=name,
        runs=configuration is not None,
        configuration=configuration,
        nodes=nodes,
        deadline_seconds=job.deadline_seconds,
        start_seconds=_around(own.start_seconds, [each.start_seconds for each in courses]),
        end_seconds=_around(own.end_seconds, [each.end_seconds for each in courses]),
        execution_usd=_around(own.execution_usd, [each.execution_usd for each in courses]),
        tardiness_usd=_around(own.tardiness_usd, [each.tardiness_usd for each in courses]),
        on_time=_share_on_time([each.end_seconds <= job.deadline_seconds for each in courses], bool(drawn)),
        reason=reason_of(state, decision, name, own.start_seconds, own.end_seconds, own.started_by),
    )


def _share_on_time(kept: list[bool], is_drawn: bool) -> float:
    """The probability to keep a deadline: of k in n drawn courses (k + 1/2) / (n + 1), Jeffreys' estimate.

    So that twenty courses of twenty, drawn from intervals that may be off themselves, are not certain.
    """
    return (sum(kept) + 0.5) / (len(kept) + 1) if is_drawn else float(all(kept))


def _around(middle: float, values: list[float]) -> Quantiles:
    """The 10th and 90th percentile of drawn values around the course at predicted times."""
    ordered = sorted(values)
    low, high = (ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in (0.1, 0.9))
    return Quantiles(min(low, middle), middle, max(high, middle))
