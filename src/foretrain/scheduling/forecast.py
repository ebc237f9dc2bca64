"""One decision from the present, and a forecast of every job: the policy goes on in the simulator.

The forecast starts from the present state with the decision that was made. It knows no future submissions.
Its middle is the course at predicted times; intervals come from courses with times drawn from the intervals
of predictions. All later decisions are made by the policy, or by the one that it names for forecasts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from foretrain.answers import Answer
from foretrain.encoding import encode
from foretrain.estimates import Quantiles
from foretrain.scheduling.loop import (
    Decision,
    EventKind,
    InvalidDecision,
    LoopTurn,
    Policy,
    drive,
    nodes_by_job,
    place_loads,
    violations,
)
from foretrain.scheduling.policies import policies
from foretrain.scheduling.problem import Configuration
from foretrain.scheduling.simulation import Disturbances, PriceChange, Simulation
from foretrain.scheduling.state import JobState, State
from foretrain.units import HOUR, format_duration, format_money


@dataclass(frozen=True)
class JobCourse:
    """What becomes of a job in one course of events; infinite where it never happens."""

    start_seconds: float
    end_seconds: float
    execution_usd: float
    tardiness_usd: float
    started_by: str = ""


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
    reason: ForecastReason


@dataclass(frozen=True)
class ScheduleWhatIf:
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
    what_if: ScheduleWhatIf | None = None
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


def _plain_what_if(answer: ScheduleWhatIf) -> dict[str, Any]:
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
    middle, total_usd = _course(state, decision, policy, Disturbances(price_changes=price_changes))
    drawn = [
        _course(
            state,
            decision,
            policy,
            Disturbances(seed=number, prediction_error=True, price_changes=price_changes),
        )[0]
        for number in range(seed, seed + (0 if _is_exact(state) else draws))
    ]
    loads = place_loads(state, decision)
    where = nodes_by_job(loads)
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
        total_usd=total_usd,
        unfit={},
        notes=decision.notes,
    )


def what_if(before: Schedule, after: Schedule, job: str) -> ScheduleWhatIf:
    """What a job adds: `after` is the schedule with it."""
    ends = {each.job: each.end_seconds.p50 for each in before.jobs}
    delayed = [
        (each.job, each.end_seconds.p50 - ends[each.job])
        for each in after.jobs
        if each.job in ends and abs(each.end_seconds.p50 - ends[each.job]) >= 1
    ]
    own = next(each for each in after.jobs if each.job == job)
    return ScheduleWhatIf(
        own, after.total_usd - before.total_usd, tuple(sorted(delayed, key=lambda each: -each[1]))
    )


def _is_exact(state: State) -> bool:
    return all(each.job.spread.p10 == each.job.spread.p90 for each in state.jobs.values())


Course = tuple[Mapping[str, JobCourse], float]
"""One course of events from the present on: its jobs, and what it costs in all."""


def _course(state: State, decision: Decision, policy: Policy, disturbances: Disturbances) -> Course:
    """What follows from a decision: the simulator goes on until all jobs of the state have ended."""
    if disturbances.prediction_error:
        state = _with_drawn_paces(state, disturbances)
    simulation = Simulation.resumed(state, (), disturbances)
    starts = {name: (job.running.started_seconds, "") for name, job in state.jobs.items() if job.running}
    for name in decision.configurations():
        starts.setdefault(name, (state.now, ""))

    def note(step: LoopTurn) -> None:
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
    return jobs, outcome.execution_usd + late


def _with_drawn_paces(state: State, disturbances: Disturbances) -> State:
    """Jobs that run and were not observed yet also take a drawn time."""
    draws = disturbances.draws()
    jobs = {
        name: replace(job, pace=draws.pace(job.job)) if job.running is not None and job.pace == 1.0 else job
        for name, job in state.jobs.items()
    }
    return replace(state, jobs=jobs)


def _event_text(step: LoopTurn) -> str:
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
    middle: Mapping[str, JobCourse],
    drawn: list[Mapping[str, JobCourse]],
) -> JobForecast:
    job = state.jobs[name].job
    own = middle[name]
    courses = [course[name] for course in drawn] or [own]
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


# ---------------------------------------------------------------- reasons


@dataclass(frozen=True, slots=True)
class ForecastReason:
    """`why` a job runs as it does or waits, when one that waits starts, and what its lateness costs."""

    why: str
    starts_when: str
    lateness: str


def reason_of(
    state: State, decision: Decision, name: str, start: float, end: float, started_by: str
) -> ForecastReason:
    """The reason for one job, given its predicted start and end."""
    job = state.jobs[name]
    chosen = decision.configurations().get(name)
    why = _why_it_runs(state, job, chosen) if chosen is not None else _why_it_waits(state, decision, job)
    by_policy = decision.reasons.get(name, "")
    return ForecastReason(
        why=f"{why}; the policy: {by_policy}" if by_policy else why,
        starts_when="" if chosen is not None else _starts_when(state, start, started_by),
        lateness=_lateness(state, job, end),
    )


def _why_it_runs(state: State, job: JobState, chosen: Configuration) -> str:
    """How its configuration compares with the others it could use."""
    now = state.now
    usd = {each: state.finish_usd(job, each) for each in state.configurations(job)}
    end = now + job.seconds_left(chosen, now)
    slack = job.job.deadline_seconds - end
    when = f"ends {format_duration(slack)} early" if slack >= 0 else f"ends {format_duration(-slack)} late"
    running = job.running
    if running is not None and not job.may_stop(now):
        return f"keeps {chosen}: it may not be moved now; {when} there"
    verb = "keeps" if running is not None and running.configuration == chosen else "takes"
    if chosen not in usd:
        return f"{verb} {chosen}; {when} there"
    in_time = [each for each in usd if now + job.seconds_left(each, now) <= job.job.deadline_seconds]
    cheapest = min(usd, key=lambda each: usd[each])
    fastest = min(usd, key=lambda each: job.seconds_left(each, now))
    if usd[chosen] <= usd[cheapest] * (1 + 1e-9):
        rank = "its cheapest configuration"
    elif in_time and usd[chosen] <= min(usd[each] for each in in_time) * (1 + 1e-9):
        rank = "its cheapest configuration that keeps the deadline"
    elif chosen == fastest:
        rank = "its fastest configuration"
    else:
        rank = f"{format_money(usd[chosen] - usd[cheapest])} above its cheapest, {cheapest}"
    return f"{verb} {chosen}, {rank}; {when} there"


def _why_it_waits(state: State, decision: Decision, job: JobState) -> str:
    configurations = state.configurations(job)
    if not configurations:
        return _why_inadmissible(state, job)
    if not any(_has_room(state, decision, each) for each in configurations):
        least = min(configurations, key=lambda each: each.gpus * each.nodes)
        return f"waits for GPUs: no node has room for {least}, the least it needs"
    slack = max(
        job.job.deadline_seconds - state.now - job.seconds_left(each, state.now) for each in configurations
    )
    if slack > 0:
        return (
            f"waits although there is room: it can start {format_duration(slack)} later and keep its deadline"
        )
    return "waits although there is room: other uses of the money are worth more now"


def _why_inadmissible(state: State, job: JobState) -> str:
    if state.is_capped(job.job):
        who = f"user {job.job.user}" if job.job.user in state.caps.user_usd else "the month"
        return f"waits: the cap of {who} leaves nothing to spend"
    if not any(state.has_nodes(each) for each in job.job.seconds):
        return "waits for a repair: the nodes it needs have failed"
    return f"waits: it cannot be finished within its budget of {format_money(job.job.budget_usd)}"


def _has_room(state: State, decision: Decision, configuration: Configuration) -> bool:
    """Whether a configuration would fit beside the loads of a decision."""
    used = Counter(load.group for load in decision.loads)
    for index, group in enumerate(state.fleet.groups):
        if configuration.node_type not in group.types:
            continue
        if state.available(index) - used[index] >= configuration.nodes:
            return True
    gpus = state.fleet.types[configuration.node_type].gpus
    return configuration.nodes == 1 and any(
        load.node_type == configuration.node_type and gpus - load.used_gpus >= configuration.gpus
        for load in decision.loads
    )


def _starts_when(state: State, start: float, started_by: str) -> str:
    if not math.isfinite(start):
        return "never, as things stand"
    event = f", when {started_by}" if started_by else ""
    return f"in {format_duration(start - state.now)}{event}"


def _lateness(state: State, job: JobState, end: float) -> str:
    weight = job.job.weight_usd_per_second
    hourly = f"an hour of lateness costs {format_money(weight * HOUR)}"
    if not math.isfinite(end):
        return f"it does not end; {hourly}"
    late = end - job.job.deadline_seconds
    if late <= 0:
        return f"on time with {format_duration(-late)} to spare; {hourly}"
    best = min((state.now + job.seconds_left(each, state.now) for each in job.job.seconds), default=math.inf)
    least = best - job.job.deadline_seconds
    unavoidable = f", at least {format_duration(least)} of it whatever is done" if least > 0 else ""
    return f"{format_duration(late)} late{unavoidable}: {format_money(weight * late)}"
