"""Families of generated problems by name, and how a problem of a family is drawn.

    jobs                10 per node
    deadline            submission + U(1, 3) · fastest time on the fleet
    weight              2 · U(0.0015, 0.0075) USD per second of lateness

Utilisation is the share of the fleet's GPUs that jobs keep busy at their most efficient width: low 0.3,
high 1.1, mixed alternates between 0.3 and 1.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from foretrain.errors import InvalidRequest
from foretrain.registry import Registry
from foretrain.scheduling.generators.arrivals import (
    Arrivals,
    Demand,
    ExponentialGaps,
    PoissonGaps,
    UtilisationGaps,
)
from foretrain.scheduling.generators.fleets import cloud, hybrid, owned
from foretrain.scheduling.generators.job_kinds import AmdahlJobs, JobKind, TableJobs, Times
from foretrain.scheduling.problem import Fleet, Job, Problem

JOBS_PER_NODE = 10
SLACK = (1.0, 3.0)
WEIGHT_USD_PER_SECOND = (2 * 0.0015, 2 * 0.0075)


@dataclass(frozen=True)
class Family:
    """A family of problems: when jobs come, how long they take, and the fleet."""

    name: str
    summary: str
    arrivals: Arrivals
    jobs: JobKind
    fleet: Callable[[int], Fleet] = cloud

    def problem(self, nodes: int, seed: int = 0, jobs_per_node: float = JOBS_PER_NODE) -> Problem:
        """One problem; the same for the same arguments."""
        if nodes < 1 or jobs_per_node < 0:
            raise InvalidRequest(
                f"{nodes} `nodes` with {jobs_per_node} `jobs_per_node`: give at least 1 node"
            )
        random = np.random.default_rng([seed, nodes, *self.name.encode()])
        fleet = self.fleet(nodes)
        times = [self.jobs.draw(random) for _ in range(round(nodes * jobs_per_node))]
        demand = Demand(tuple(_least_gpu_seconds(each, fleet) for each in times), fleet)
        submissions = np.cumsum(self.arrivals.gaps(demand, random))
        return Problem(
            tuple(
                _job(number, each, float(submission), fleet, random)
                for number, (each, submission) in enumerate(zip(times, submissions, strict=True), start=1)
            ),
            fleet,
        )


def _job(number: int, times: Times, submit: float, fleet: Fleet, random: np.random.Generator) -> Job:
    seconds = times.on(fleet)
    return Job(
        name=f"{number:04d}-{times.name}",
        submit_seconds=submit,
        deadline_seconds=submit + float(random.uniform(*SLACK)) * min(seconds.values()),
        weight_usd_per_second=float(random.uniform(*WEIGHT_USD_PER_SECOND)),
        seconds=seconds,
        spread=times.spread,
    )


def _least_gpu_seconds(times: Times, fleet: Fleet) -> float:
    return min(each.gpus * seconds for each, seconds in times.on(fleet).items())


_ARRIVALS: dict[str, tuple[str, Arrivals]] = {
    "poisson-30": ("Poisson gaps of mean 30 s", PoissonGaps(30)),
    "poisson-45": ("Poisson gaps of mean 45 s", PoissonGaps(45)),
    "exponential": ("exponential gaps of mean 30,000 s / nodes", ExponentialGaps(30_000)),
    "low": ("utilisation 0.3", UtilisationGaps((0.3,))),
    "high": ("utilisation 1.1", UtilisationGaps((1.1,))),
    "mixed": ("utilisation alternating between 0.3 and 1.0", UtilisationGaps((0.3, 1.0))),
}
_SHORT = (1.0, 1.0)
_LONG = (10.0, 200.0)
_SHORT_SECONDS = (1e3, 6e3)
_LONG_SECONDS = (5e4, 5e5)


def _families() -> Iterator[Family]:
    for name, (when, arrivals) in _ARRIVALS.items():
        is_short = isinstance(arrivals, PoissonGaps)
        table = TableJobs(_SHORT if is_short else _LONG)
        amdahl = AmdahlJobs(_SHORT_SECONDS if is_short else _LONG_SECONDS)
        yield Family(name, f"Jobs of the seed's table, {when}.", arrivals, table)
        yield Family(f"{name}-scaling", f"Jobs that scale well, {when}.", arrivals, amdahl)
    when, arrivals = _ARRIVALS["mixed"]
    table = TableJobs(_LONG)
    yield Family("hybrid", f"In-house servers and cloud nodes, {when}.", arrivals, table, hybrid)
    yield Family("owned", f"An owned heterogeneous cluster, {when}.", arrivals, table, owned)


@cache
def families() -> Registry[Family]:
    """All families by name."""
    known = tuple(_families())
    hint = f"Known: {', '.join(each.name for each in known)}"
    return Registry("family of problems", known, name=lambda each: each.name, hint=hint)
