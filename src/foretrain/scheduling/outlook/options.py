"""What each job can run on, as arrays over jobs and places.

A place is a number of GPUs of one kind in one group of nodes (or whole nodes, for a job that spans several).
Node types of one kind that differ in size only are one place, because the same GPUs can be had on any of
them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretrain.scheduling.problem import Configuration, Fleet, Job, Switching
from foretrain.scheduling.state import JobState, State

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_CACHED_JOBS = 20_000
_TRADE_OFFS = tuple(
    (money, nodes, time)
    for money, nodes in ((1.0, 0.0), (0.5, 0.5), (0.0, 1.0))
    for time in (0.0, 0.03, 0.1, 0.3, 0.6, 1.0, 1.7, 3.0, 10.0, 100.0)
)
"""Weights of money, node time and time; a place that is best for none of them is never needed."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Nodes of a group with one kind of GPU: their types by size, smallest first."""

    group: int
    gpu: str
    types: tuple[str, ...]
    sizes: tuple[int, ...]
    usd_per_second: tuple[float, ...]

    @property
    def most_gpus(self) -> int:
        """GPUs of the largest node."""
        return self.sizes[-1]

    def cheapest(self, gpus: int) -> int | None:
        """The position of the cheapest type with at least `gpus` GPUs."""
        fitting = [index for index, size in enumerate(self.sizes) if size >= gpus]
        return min(fitting, key=lambda index: (self.usd_per_second[index], self.sizes[index]), default=None)


@dataclass(frozen=True, eq=False)
class Places:
    """All places of a fleet. `fraction` is the share of a node (or the number of nodes) a place takes;
    `usd` its price per second if no GPU of its nodes is idle.
    """

    kinds: tuple[Kind, ...]
    kind: Integers
    gpus: Integers
    nodes: Integers
    group: Integers
    fraction: Floats
    usd: Floats
    startup: Floats
    of_configuration: Mapping[Configuration, tuple[int, ...]]
    types_of: tuple[tuple[Configuration, ...], ...]

    def __len__(self) -> int:
        return len(self.gpus)


@dataclass(frozen=True, eq=False)
class Table:
    """Jobs and their times. Times are relative to now; `seconds` is infinite where a job may not run.

    Time without progress on a place: `overhead` if a job starts there now, `later` if it starts there later,
    `switch` if it moves there from elsewhere. `present` is the place where it runs (-1 if it waits); `useful`
    lists the places worth considering, padded with -1.
    """

    names: tuple[str, ...]
    work: Floats
    deadline: Floats
    weight: Floats
    seconds: Floats
    overhead: Floats
    later: Floats
    switch: Floats
    present: Integers
    fixed: NDArray[np.bool_]
    useful: Integers


def places_of(fleet: Fleet, spanning: frozenset[Configuration], alone: bool = True) -> Places:
    """The places of a fleet; `spanning` are configurations of several nodes that some job can use."""
    groups = tuple((group.count, group.types) for group in fleet.groups)
    types = tuple(sorted(fleet.types.values(), key=lambda each: each.name))
    return _places(groups, types, spanning, alone)


@lru_cache(maxsize=64)
def _places(
    groups: tuple[tuple[int, tuple[str, ...]], ...],
    types: tuple[Any, ...],
    spanning: frozenset[Configuration],
    alone: bool,
) -> Places:
    by_name = {each.name: each for each in types}
    kinds: list[Kind] = []
    rows: list[tuple[int, int, int, float, float, float, tuple[Configuration, ...]]] = []
    for group, (count, names) in enumerate(groups):
        of_kind: dict[tuple[Any, ...], list[Any]] = {}
        for name in names:
            each = by_name[name]
            of_kind.setdefault((each.gpu, each.market, each.interruptions_per_hour), []).append(each)
        for (gpu, *_), members in of_kind.items():
            members.sort(key=lambda each: (each.gpus, each.usd_per_hour, each.name))
            kind = Kind(
                group,
                gpu,
                tuple(each.name for each in members),
                tuple(each.gpus for each in members),
                tuple(each.usd_per_second for each in members),
            )
            startup = max(each.startup_seconds for each in members)
            for gpus in range(1, kind.most_gpus + 1):
                fitting = [each for each in members if each.gpus >= gpus]
                usd = _usd(kind, gpus, alone)
                configurations = tuple(Configuration(each.name, gpus) for each in fitting)
                rows.append((len(kinds), gpus, 1, gpus / kind.most_gpus, usd, startup, configurations))
            for wide in sorted(spanning):
                if wide.node_type in kind.types and wide.nodes <= count:
                    price = by_name[wide.node_type].usd_per_second * wide.nodes
                    rows.append(
                        (len(kinds), wide.gpus, wide.nodes, float(wide.nodes), price, startup, (wide,))
                    )
            kinds.append(kind)
    of_configuration: dict[Configuration, tuple[int, ...]] = {}
    for index, row in enumerate(rows):
        for configuration in row[6]:
            of_configuration[configuration] = (*of_configuration.get(configuration, ()), index)
    return Places(
        kinds=tuple(kinds),
        kind=np.array([row[0] for row in rows], dtype=np.int64),
        gpus=np.array([row[1] for row in rows], dtype=np.int64),
        nodes=np.array([row[2] for row in rows], dtype=np.int64),
        group=np.array([kinds[row[0]].group for row in rows], dtype=np.int64),
        fraction=np.array([row[3] for row in rows]),
        usd=np.array([row[4] for row in rows]),
        startup=np.array([row[5] for row in rows]),
        of_configuration=of_configuration,
        types_of=tuple(row[6] for row in rows),
    )


def _usd(kind: Kind, gpus: int, alone: bool) -> float:
    """What `gpus` GPUs cost: a node of that size, or the next larger one with its other GPUs idle.

    Where every node is large, jobs have to share them, and pay their share.
    """
    if kind.sizes[0] > 1 or not alone:
        return min(
            usd * gpus / size
            for usd, size in zip(kind.usd_per_second, kind.sizes, strict=True)
            if size >= gpus
        )
    cheapest = kind.cheapest(gpus)
    assert cheapest is not None
    return kind.usd_per_second[cheapest]


_cache: dict[int, tuple[Mapping[Configuration, float], Places, Floats, tuple[int, ...]]] = {}


def _row(job: Job, places: Places) -> tuple[Floats, tuple[int, ...]]:
    """Seconds of a whole job on each place, and the useful places; remembered, since jobs do not change."""
    known = _cache.get(id(job.seconds))
    if known is not None and known[0] is job.seconds and known[1] is places:
        return known[2], known[3]
    seconds = _seconds(job.seconds, places)
    useful = useful_places(seconds, places)
    if len(_cache) >= _CACHED_JOBS:
        _cache.clear()
    _cache[id(job.seconds)] = (job.seconds, places, seconds, useful)
    return seconds, useful


def _seconds(times: Mapping[Configuration, float], places: Places) -> Floats:
    seconds = np.full(len(places), math.inf)
    for configuration, each in times.items():
        for index in places.of_configuration.get(configuration, ()):
            seconds[index] = min(seconds[index], each)
    return seconds


def useful_places(seconds: Floats, places: Places) -> tuple[int, ...]:
    """The places that are best for some trade-off of money, node time and time."""
    finite = np.isfinite(seconds)
    if not finite.any():
        return ()
    usd = places.usd / max(float(places.usd[finite].mean()), 1e-12)
    fraction = places.fraction / float(places.fraction[finite].mean())
    weights = np.array(_TRADE_OFFS)
    rates = weights[:, :1] * usd + weights[:, 1:2] * fraction + weights[:, 2:]
    best = np.argmin(np.where(finite, seconds * rates, math.inf), axis=1)
    return tuple(sorted({int(index) for index in best}))


def spanning_configurations(jobs: Sequence[Job]) -> frozenset[Configuration]:
    """Configurations of several nodes that some job can use."""
    return frozenset(each for job in jobs for each in job.seconds if each.nodes > 1)


def _is_unrestricted(state: State) -> bool:
    """Whether every configuration of the fleet is admissible for jobs without a budget."""
    return (
        not state.lost
        and not state.caps.user_usd
        and math.isinf(state.caps.month_usd)
        and all(each.interruptions_per_hour == 0 for each in state.fleet.types.values())
    )


def table_of(state: State, places: Places, most_places: int) -> Table:
    """Active jobs of a state."""
    unrestricted = _is_unrestricted(state)
    count = len(state.jobs)
    seconds = np.full((count, len(places)), math.inf)
    overhead, later = np.zeros((2, count, len(places)))
    present = np.full(count, -1, dtype=np.int64)
    fixed = np.zeros(count, dtype=bool)
    useful: list[tuple[int, ...]] = []
    on = {node.node_type for node in state.nodes.values()}
    cold = np.array(
        [
            0.0 if any(each.node_type in on for each in types) else wait
            for types, wait in zip(places.types_of, places.startup.tolist(), strict=True)
        ]
    )
    for index, job in enumerate(state.jobs.values()):
        row, best = _row(job.job, places)
        free = unrestricted and math.isinf(job.job.budget_usd) and job.may_stop(state.now)
        if not free:
            fixed[index] = job.running is not None and not job.may_stop(state.now)
            admitted = {each: job.job.seconds[each] for each in state.configurations(job)}
            row = _seconds(admitted, places)
            best = useful_places(row, places)
        seconds[index] = row * job.pace
        later[index] = cold + job.overhead_seconds(next(iter(job.job.seconds)))
        overhead[index] = later[index]
        if job.running is not None:
            here = _present(job, places, state)
            present[index] = here
            overhead[index, here] = max(0.0, job.running.progress_from - state.now)
            if here not in best and math.isfinite(row[here]) and _switching_costs(job):
                best = (*best, here)
        useful.append(best)
    jobs = [each.job for each in state.jobs.values()]
    return Table(
        names=tuple(state.jobs),
        work=np.array([each.left(state.now) for each in state.jobs.values()]),
        deadline=np.array([each.deadline_seconds - state.now for each in jobs]),
        weight=np.array([each.weight_usd_per_second for each in jobs]),
        seconds=seconds,
        overhead=overhead,
        later=later,
        switch=np.add.outer([_move_seconds(each.switching) for each in jobs], cold),
        present=present,
        fixed=fixed,
        useful=_padded(useful, seconds, most_places),
    )


def _move_seconds(switching: Switching) -> float:
    """Time without progress of a running job that goes on elsewhere."""
    return (
        switching.start_seconds
        + switching.checkpoint_seconds
        + switching.restart_seconds
        + switching.migration_seconds
    )


def _switching_costs(job: JobState) -> bool:
    return job.overhead_seconds(next(iter(job.job.seconds))) > 0 or job.starts > 0


def _present(job: JobState, places: Places, state: State) -> int:
    assert job.running is not None
    group = state.fleet.group_of(job.running.nodes[0])
    return next(
        index for index in places.of_configuration[job.running.configuration] if places.group[index] == group
    )


def _padded(useful: Sequence[tuple[int, ...]], seconds: Floats, most: int) -> Integers:
    """Useful places of each job side by side; of more than `most`, some from the fastest to the slowest."""
    width = min(most, max((len(each) for each in useful), default=0))
    table = np.full((len(useful), max(width, 1)), -1, dtype=np.int64)
    for row, each in enumerate(useful):
        if len(each) > most:
            by_time = sorted(each, key=lambda index: seconds[row, index])
            steps = np.unique(np.round(np.linspace(0, len(by_time) - 1, most)).astype(int))
            each = tuple(by_time[step] for step in steps)
        table[row, : len(each)] = each
    return table
