"""The cheapest schedule of tiny problems, by trying everything: a yardstick for policies and the bound.

Jobs may be stopped, moved and resized at no cost at every submission and completion, and at the times of a
`grid` on top. All assignments of jobs to configurations are tried there, packed into as cheap nodes as
possible; what follows from a state is computed once, and assignments that cannot beat the best one are left
out. For up to about four jobs, two nodes and a handful of configurations each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product

from foretrain.scheduling.problem import Configuration, Fleet, Problem, SubmittedJob, runnable

_DONE = 1e-9
_Shares = tuple[tuple[int, float], ...]
"""The active jobs (their positions) and the share left of each."""


def optimal_usd(problem: Problem, grid: Sequence[float] = ()) -> float:
    """The least total cost; every job must be able to run, and prices and nodes are those of the problem."""
    return _Optimum(problem, grid).to_go(0.0, ())


class _Optimum:
    def __init__(self, problem: Problem, grid: Sequence[float]) -> None:
        self._jobs = problem.jobs
        self._fleet = problem.fleet
        self._choices = [runnable(job, problem.fleet) for job in problem.jobs]
        self._times = sorted({*(job.submit_seconds for job in problem.jobs), *grid})
        self._known: dict[tuple[float, _Shares], float] = {}
        self._rate = cache(self._rate_of)

    def to_go(self, now: float, active: _Shares) -> float:
        """The least cost from a state on. Jobs submitted at `now` are not yet among the active ones."""
        submitted = [
            (at, 1.0)
            for at, job in enumerate(self._jobs)
            if abs(job.submit_seconds - now) <= _DONE * max(1.0, now)
        ]
        active = tuple(sorted((*active, *(each for each in submitted if each[0] not in dict(active)))))
        later = next((time for time in self._times if time > now + _DONE * max(1.0, now)), math.inf)
        if not active:
            return 0.0 if math.isinf(later) else self.to_go(later, ())
        key = (round(now, 6), tuple((at, round(left, 9)) for at, left in active))
        if key not in self._known:
            self._known[key] = self._best(now, active, later)
        return self._known[key]

    def _best(self, now: float, active: _Shares, later: float) -> float:
        best = math.inf
        for usd, time, left in sorted(self._steps(now, active, later)):
            if usd + sum(self._least(time, at, share) for at, share in left) < best:
                best = min(best, usd + self.to_go(time, left))
        return best

    def _steps(self, now: float, active: _Shares, later: float) -> Iterator[tuple[float, float, _Shares]]:
        """Every assignment: its cost up to the next event, when that is, and what is left then."""
        for chosen in product(*((None, *self._choices[at]) for at, _ in active)):
            rate = self._rate(tuple(sorted(each for each in chosen if each is not None)))
            ends = [
                now + share * self._jobs[at].seconds[each]
                for (at, share), each in zip(active, chosen, strict=True)
                if each is not None
            ]
            time = min([later, *ends])
            if math.isinf(rate) or math.isinf(time):
                continue
            left = tuple(
                (at, share if each is None else share - (time - now) / self._jobs[at].seconds[each])
                for (at, share), each in zip(active, chosen, strict=True)
            )
            late = sum(_late_usd(self._jobs[at], now, time) for at, _ in active)
            yield rate * (time - now) + late, time, tuple(each for each in left if each[1] > _DONE)

    def _least(self, now: float, at: int, share: float) -> float:
        """What the rest of a job costs at least."""
        job = self._jobs[at]
        return min(
            share * job.seconds[each] * _usd_per_second(each, self._fleet)
            + _late_usd(job, now, now + share * job.seconds[each])
            for each in self._choices[at]
        )

    def _rate_of(self, chosen: tuple[Configuration, ...]) -> float:
        """The price per second of the cheapest nodes that hold configurations; infinite if none do."""
        return _cheapest(self._fleet, chosen, ())


def _late_usd(job: SubmittedJob, start: float, end: float) -> float:
    return job.weight_usd_per_second * max(0.0, end - max(start, job.deadline_seconds))


def _usd_per_second(configuration: Configuration, fleet: Fleet) -> float:
    node_type = fleet.types[configuration.node_type]
    return node_type.usd_per_second * configuration.nodes * configuration.gpus / node_type.gpus


_Nodes = tuple[tuple[int, str, int], ...]
"""Nodes that are on: group, type and free GPUs."""


def _cheapest(fleet: Fleet, chosen: tuple[Configuration, ...], nodes: _Nodes) -> float:
    if not chosen:
        used = [sum(node[0] == group for node in nodes) for group in range(len(fleet.groups))]
        if any(count > group.count for count, group in zip(used, fleet.groups, strict=True)):
            return math.inf
        return sum(fleet.types[name].usd_per_second for _, name, _ in nodes)
    first, *others = chosen
    rest = tuple(others)
    rates = [math.inf]
    for place, (group, name, free) in enumerate(nodes):
        if first.nodes == 1 and name == first.node_type and free >= first.gpus:
            joined = (*nodes[:place], (group, name, free - first.gpus), *nodes[place + 1 :])
            rates.append(_cheapest(fleet, rest, joined))
    for group, each in enumerate(fleet.groups):
        if first.node_type in each.types and len(nodes) + first.nodes <= fleet.nodes:
            free = fleet.types[first.node_type].gpus - first.gpus
            rates.append(_cheapest(fleet, rest, nodes + ((group, first.node_type, free),) * first.nodes))
    return min(rates)
