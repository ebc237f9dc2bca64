"""Random states and problems of scheduling, consistent and deliberately awkward, for conformance suites.

All take a `random.Random`; with hypothesis, draw it from `st.randoms(use_true_random=False)` to have failures
made smaller.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

from foretrain.scheduling.problem import (
    Caps,
    Configuration,
    Fleet,
    Market,
    NodeGroup,
    NodeType,
    Problem,
    SubmittedJob,
    Switching,
    exists,
)
from foretrain.scheduling.state import JobState, NodeState, Running, State

_WIDTHS = (1, 2, 4, 8)


def random_fleet(random: Random) -> Fleet:
    """One to three groups of nodes, with one or several types each, of two kinds of GPU."""
    types = {
        each.name: each
        for each in (
            NodeType(
                name=f"{gpu}x{gpus}",
                gpu=gpu,
                gpus=gpus,
                usd_per_hour=price * gpus,
                market=random.choice((Market.ON_DEMAND, Market.ON_DEMAND, Market.SPOT, Market.OWNED)),
                startup_seconds=random.choice((0.0, 0.0, 60.0)),
                billing_seconds=random.choice((0.0, 0.0, 60.0)),
                interruptions_per_hour=random.choice((0.0, 0.1)),
            )
            for gpu, price in (("k80", 0.56), ("m60", 0.62))
            for gpus in _WIDTHS
        )
    }
    names = sorted(types)
    groups = tuple(
        NodeGroup(random.randint(1, 4), tuple(sorted(random.sample(names, random.randint(1, 4)))))
        for _ in range(random.randint(1, 3))
    )
    used = {name for group in groups for name in group.types}
    return Fleet({name: types[name] for name in names if name in used}, groups)


def random_job(random: Random, name: str, fleet: Fleet, submit: float) -> SubmittedJob | None:
    """A job with some of the fleet's configurations, some of them on two nodes; None if it has none."""
    one = random.uniform(100, 100_000)
    serial = random.uniform(0.0, 0.8)
    seconds = {
        configuration: one * random.uniform(0.8, 1.2) * (serial + (1 - serial) / (gpus * nodes))
        for node_type in fleet.types.values()
        for nodes in (1, 2)
        for gpus in (range(1, node_type.gpus + 1) if nodes == 1 else (node_type.gpus,))
        if exists(configuration := Configuration(node_type.name, gpus, nodes), fleet)
        and random.random() < (0.7 if nodes == 1 else 0.2)
    }
    if not seconds:
        return None
    return SubmittedJob(
        name=name,
        submit_seconds=submit,
        deadline_seconds=submit + random.uniform(0.5, 3) * min(seconds.values()),
        weight_usd_per_second=random.choice((0.0, 0.005, random.uniform(0.003, 0.015))),
        seconds=seconds,
        priority=random.choice((0.0, 0.0, 1.0)),
        user=random.choice(("", "ada", "ben")),
        budget_usd=random.choice((math.inf, math.inf, math.inf, 1.0, 1000.0)),
        switching=random_switching(random),
    )


def random_switching(random: Random) -> Switching:
    """Free, or with costs; some jobs may not be moved at all or for a while."""
    if random.random() < 0.5:
        return Switching()
    return Switching(
        checkpoint_seconds=random.choice((0.0, 10.0)),
        restart_seconds=random.choice((0.0, 30.0)),
        migration_seconds=random.choice((0.0, 20.0)),
        minimum_run_seconds=random.choice((0.0, 600.0)),
        checkpoint_every_seconds=random.choice((0.0, 300.0)),
        movable=random.random() < 0.7,
    )


def random_problem(random: Random, most_jobs: int = 12) -> Problem:
    """Jobs over some hours on a random fleet, without budgets and caps, so that all of them can end."""
    from dataclasses import replace

    fleet = random_fleet(random)
    drawn = (
        random_job(random, f"job-{number}", fleet, random.uniform(0, 20_000))
        for number in range(random.randint(0, most_jobs))
    )
    return Problem(tuple(replace(job, budget_usd=math.inf) for job in drawn if job is not None), fleet)


def random_state(random: Random, most_jobs: int = 14) -> State:
    """A consistent snapshot: some jobs run, of which some may not be stopped; some nodes are lost."""
    fleet = random_fleet(random)
    now = random.uniform(0, 50_000)
    jobs = [
        job
        for number in range(random.randint(0, most_jobs))
        if (job := random_job(random, f"job-{number}", fleet, random.uniform(0, now))) is not None
    ]
    jobs.sort(key=lambda job: job.submit_seconds)
    lost = frozenset(node for node in range(fleet.nodes) if random.random() < 0.1)
    running, nodes = _start_jobs(random, jobs, fleet, lost, now)
    states = {job.name: _job_state(random, job, running.get(job.name), now) for job in jobs}
    caps = random.choice((Caps(), Caps(), Caps({"ada": 5.0}), Caps(month_usd=50.0)))
    return State(
        now=now,
        fleet=fleet,
        jobs=states,
        nodes=nodes,
        lost=lost,
        caps=caps,
        spent_by_user={"ada": random.choice((0.0, 10.0))},
        spent_this_month=random.choice((0.0, 40.0, 60.0)),
    )


def _start_jobs(
    random: Random, jobs: Sequence[SubmittedJob], fleet: Fleet, lost: frozenset[int], now: float
) -> tuple[dict[str, Running], dict[int, NodeState]]:
    """Start some jobs on nodes that have room."""
    running: dict[str, Running] = {}
    free: dict[int, int] = {}
    types: dict[int, str] = {}
    shares: dict[int, list[tuple[str, int]]] = {}
    for job in jobs:
        configuration = random.choice(sorted(job.seconds))
        nodes = _nodes_for(configuration, fleet, lost, free, types)
        if random.random() < 0.5 or nodes is None:
            continue
        for node in nodes:
            types[node] = configuration.node_type
            free[node] = free.get(node, fleet.types[configuration.node_type].gpus) - configuration.gpus
            shares.setdefault(node, []).append((job.name, configuration.gpus))
        started = now - random.choice((10.0, 1000.0))
        running[job.name] = Running(nodes, configuration, started, started + random.choice((0.0, 60.0)))
    on = {node: NodeState(node, types[node], now - 2000.0, tuple(each)) for node, each in shares.items()}
    return running, on


def _nodes_for(
    configuration: Configuration,
    fleet: Fleet,
    lost: frozenset[int],
    free: dict[int, int],
    types: dict[int, str],
) -> tuple[int, ...] | None:
    for index, group in enumerate(fleet.groups):
        if configuration.node_type not in group.types:
            continue
        able = [
            node
            for node in fleet.nodes_of(index)
            if node not in lost
            and (
                node not in types
                or (
                    configuration.nodes == 1
                    and types[node] == configuration.node_type
                    and free[node] >= configuration.gpus
                )
            )
        ]
        if len(able) >= configuration.nodes:
            return tuple(able[: configuration.nodes])
    return None


def _job_state(random: Random, job: SubmittedJob, running: Running | None, now: float) -> JobState:
    has_started = running is not None or random.random() < 0.3
    return JobState(
        job=job,
        work_left=random.uniform(0.05, 1.0) if has_started else 1.0,
        counted_at=now,
        running=running,
        pace=random.uniform(0.7, 1.5) if has_started else 1.0,
        spent_usd=random.uniform(0.0, 0.5) if has_started else 0.0,
        starts=1 if has_started else 0,
    )
