"""Why a job runs as it does, or waits: what a decision means for it, in words and figures."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from foretrain.scheduling.decision import Decision
from foretrain.scheduling.problem import Configuration
from foretrain.scheduling.state import JobState, State
from foretrain.units import HOUR, format_duration, format_money


@dataclass(frozen=True, slots=True)
class Reason:
    """`why` a job runs as it does or waits, when one that waits starts, and what its lateness costs."""

    why: str
    starts_when: str
    lateness: str


def reason_of(
    state: State, decision: Decision, name: str, start: float, end: float, started_by: str
) -> Reason:
    """The reason for one job, given its predicted start and end."""
    job = state.jobs[name]
    chosen = decision.configurations().get(name)
    why = _why_it_runs(state, job, chosen) if chosen is not None else _why_it_waits(state, decision, job)
    by_policy = decision.reasons.get(name, "")
    return Reason(
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
