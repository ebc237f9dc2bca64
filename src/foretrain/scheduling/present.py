"""The state of a cluster at one moment, from jobs as files describe them: which wait, which run where."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from foretrain.errors import InvalidRequest
from foretrain.scheduling.decision import Decision, NodeLoad, violations
from foretrain.scheduling.files import JobEntry
from foretrain.scheduling.problem import Job, Problem, runnable
from foretrain.scheduling.state import JobState, NodeState, Running, State


def present_state(problem: Problem, entries: Iterable[JobEntry], now: float) -> State:
    """The state at `now`: jobs that were submitted by then and are unfinished.

    Jobs that fit on no node are not in it. What runs must be possible at once: GPUs and nodes are checked.
    """
    by_name = {each.job: each for each in entries}
    jobs: dict[str, JobState] = {}
    for job in problem.jobs:
        entry = by_name[job.name]
        if job.submit_seconds > now or entry.done >= 1:
            if entry.running_on is not None:
                raise InvalidRequest(
                    f"job {job.name!r} cannot run at {now:g} s: it is not submitted, or done"
                )
            continue
        if entry.running_on is not None or runnable(job, problem.fleet):
            jobs[job.name] = _job_state(job, entry, now)
    state = State(
        now=now,
        fleet=problem.fleet,
        jobs=jobs,
        nodes=_nodes(problem, jobs, now),
        caps=problem.caps,
    )
    begun = replace(state, nodes={}, jobs={name: replace(job, running=None) for name, job in jobs.items()})
    broken = violations(begun, Decision(tuple(_loads(state))))
    if broken:
        raise InvalidRequest(f"what runs at present is not possible: {'; '.join(broken)}")
    return state


def _job_state(job: Job, entry: JobEntry, now: float) -> JobState:
    running = None
    if entry.running_on is not None:
        if entry.running_on.configuration not in job.seconds:
            raise InvalidRequest(
                f"job {job.name!r} runs on {entry.running_on.configuration}: its time there is unknown"
            )
        started = job.submit_seconds if entry.started_seconds is None else entry.started_seconds
        running = Running(entry.running_on.nodes, entry.running_on.configuration, min(started, now), now)
    return JobState(
        job,
        work_left=1.0 - entry.done,
        counted_at=now,
        running=running,
        spent_usd=entry.spent_usd,
        starts=int(running is not None or entry.done > 0),
    )


def _nodes(problem: Problem, jobs: dict[str, JobState], now: float) -> dict[int, NodeState]:
    shares: dict[int, list[tuple[str, int]]] = defaultdict(list)
    types: dict[int, str] = {}
    since: dict[int, float] = {}
    for name, job in jobs.items():
        running = job.running
        for node in () if running is None else running.nodes:
            assert running is not None
            if not 0 <= node < problem.fleet.nodes:
                raise InvalidRequest(
                    f"job {name!r} runs on node {node}, but nodes are numbered 0 to {problem.fleet.nodes - 1}"
                )
            node_type = types.setdefault(node, running.configuration.node_type)
            if node_type != running.configuration.node_type:
                raise InvalidRequest(f"node {node} is a {node_type} for one job and a "
                                     f"{running.configuration.node_type} for {name!r}")  # fmt: skip
            shares[node].append((name, running.configuration.gpus))
            since[node] = min(since.get(node, now), running.started_seconds)
    return {node: NodeState(node, types[node], since[node], tuple(shares[node])) for node in sorted(types)}


def _loads(state: State) -> Iterable[NodeLoad]:
    for node in state.nodes.values():
        yield NodeLoad(state.fleet.group_of(node.number), node.node_type, node.shares)
