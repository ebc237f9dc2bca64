"""Where each job may run, for how long and for how much.

For one job, `options_of` lists the configurations it may use now, with the seconds and the cost of what is
left of it. For all jobs together, `table_of` holds the same as arrays over jobs and places. A place is a
number of GPUs of one kind in one group of nodes (or whole nodes, for a job that spans several): node types of
one kind that differ in size only are one place, because the same GPUs can be had on any of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from foretrain.scheduling.problem import Configuration, Fleet, Market, SubmittedJob, Switching, runnable
from foretrain.scheduling.state import JobState, State

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# A job is looked at with the places of few fleets at once: prices change, and `auto` prices GPUs in two ways.
_MOST_TABLES = 4
_TRADE_OFFS = tuple(
    (money, nodes, time)
    for money, nodes in ((1.0, 0.0), (0.5, 0.5), (0.0, 1.0))
    for time in (0.0, 0.03, 0.1, 0.3, 0.6, 1.0, 1.7, 3.0, 10.0, 100.0)
)
"""Weights of money, node time and time; a place that is best for none of them is never needed."""


class JobOption(NamedTuple):
    """A configuration; seconds and USD from now to the end of the job on it.

    `usd` is the price of its GPUs, `node_usd` that of its whole nodes.
    """

    configuration: Configuration
    seconds: float
    usd: float
    node_usd: float

    @property
    def gpu_seconds(self) -> float:
        """GPUs times seconds."""
        return self.configuration.gpus * self.configuration.nodes * self.seconds


def options_of(state: State, job: JobState, roomy: bool = False) -> list[JobOption]:
    """Every admissible configuration of a job; none if it has to wait.

    `roomy` leaves out node types that only have fewer GPUs than another (`_larger_types`): on the larger
    node others can join, and `Packing.shrink` takes the smaller type again where none did.
    """
    running = None if job.running is None else job.running.configuration
    # Every policy asks this of every job at every event: what does not depend on the configuration is
    # computed once, which is why the arithmetic of `JobState.seconds_left` stands here again.
    left, again = job.left(state.now) * job.pace, job.overhead_seconds(_ELSEWHERE)
    options = []
    for configuration, full_seconds, usd, node_usd, is_roomy in _admissible(state, job):
        if running is not None and configuration == running:
            seconds = job.seconds_left(configuration, state.now)
        elif roomy and not is_roomy:
            continue
        else:
            seconds = left * full_seconds + again
        options.append(JobOption(configuration, seconds, seconds * usd, seconds * node_usd))
    return options


def may_go_on(state: State, job: JobState) -> bool:
    """Whether a running job may go on as it is: within its budget and caps, and safe from interruptions."""
    if job.running is None:
        return False
    return any(row.configuration == job.running.configuration for row in _admissible(state, job))


def in_time(options: Iterable[JobOption], seconds: float) -> list[JobOption]:
    """The options that end within some time."""
    return [each for each in options if each.seconds <= seconds * (1 + 1e-12)]


def slack_seconds(state: State, job: JobState) -> float:
    """Time to the deadline."""
    return job.job.deadline_seconds - state.now


_ELSEWHERE = Configuration("", 0)
"""A configuration no job has: the time without progress of any start elsewhere."""


# ---------------------------------------------------------------- a job in a fleet


class _Row(NamedTuple):
    """A configuration of a job that exists in a fleet: seconds of the whole job, prices per second."""

    configuration: Configuration
    seconds: float
    usd: float
    node_usd: float
    is_roomy: bool


@dataclass(frozen=True, eq=False)
class _JobInFleet:
    """The configurations of a job that exist in a fleet; `on` holds its times by places, as arrays."""

    fleet: Fleet
    rows: tuple[_Row, ...]
    has_spot: bool
    on: dict[Places, tuple[Floats, tuple[int, ...]]] = field(default_factory=dict)


_KNOWN: WeakKeyDictionary[SubmittedJob, _JobInFleet] = WeakKeyDictionary()
"""Every policy asks for the same at every event, and neither jobs nor (but for prices) fleets change."""


def _known(job: SubmittedJob, fleet: Fleet) -> _JobInFleet:
    known = _KNOWN.get(job)
    if known is None or known.fleet is not fleet:
        larger = _larger_types(fleet)
        rows = tuple(_row(each, job, fleet, larger) for each in runnable(job, fleet))
        has_spot = any(fleet.types[each.configuration.node_type].market is Market.SPOT for each in rows)
        known = _KNOWN[job] = _JobInFleet(fleet, rows, has_spot)
    return known


def _row(
    configuration: Configuration, job: SubmittedJob, fleet: Fleet, larger: Mapping[str, Sequence[str]]
) -> _Row:
    node_type = fleet.types[configuration.node_type]
    usd = node_type.usd_per_second * configuration.nodes
    seconds = job.seconds[configuration]
    is_roomy = configuration.nodes > 1 or not any(
        job.seconds.get(Configuration(other, configuration.gpus), math.inf) <= seconds
        for other in larger[configuration.node_type]
    )
    return _Row(configuration, seconds, usd * configuration.gpus / node_type.gpus, usd, is_roomy)


def _admissible(state: State, job: JobState) -> tuple[_Row, ...]:
    """What a job may use now (`State.configurations`); all its rows, unfiltered, where nothing limits it."""
    known = _known(job.job, state.fleet)
    if job.running is not None and not job.may_stop(state.now):
        return tuple(row for row in known.rows if row.configuration == job.running.configuration)
    if state.is_capped(job.job):
        return ()
    if state.lost or known.has_spot or math.isfinite(job.job.budget_usd):
        allowed = set(state.configurations(job))
        return tuple(row for row in known.rows if row.configuration in allowed)
    return known.rows


def _larger_types(fleet: Fleet) -> dict[str, list[str]]:
    """For each type those that do the same with more GPUs, for about the same price per GPU.

    Only types of the same GPU and market count that the same groups of nodes may take.
    """
    groups = {
        name: [index for index, group in enumerate(fleet.groups) if name in group.types]
        for name in fleet.types
    }
    return {
        one.name: [
            other.name
            for other in fleet.types.values()
            if other.gpu == one.gpu
            and other.gpus > one.gpus
            and other.market is one.market
            and other.usd_per_hour / other.gpus <= _ABOUT * one.usd_per_hour / one.gpus
            and groups[other.name] == groups[one.name]
        ]
        for one in fleet.types.values()
    }


_ABOUT = 1.05
"""Prices of a GPU within this factor are about the same."""


# ---------------------------------------------------------------- all jobs as arrays


@dataclass(frozen=True, slots=True)
class NodeKind:
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

    kinds: tuple[NodeKind, ...]
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
class OptionTable:
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
    kinds: list[NodeKind] = []
    rows: list[tuple[int, int, int, float, float, float, tuple[Configuration, ...]]] = []
    for group, (count, names) in enumerate(groups):
        of_kind: dict[tuple[Any, ...], list[Any]] = {}
        for name in names:
            each = by_name[name]
            of_kind.setdefault((each.gpu, each.market, each.interruptions_per_hour), []).append(each)
        for (gpu, *_), members in of_kind.items():
            members.sort(key=lambda each: (each.gpus, each.usd_per_hour, each.name))
            kind = NodeKind(
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


def _usd(kind: NodeKind, gpus: int, alone: bool) -> float:
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


def _on_places(
    job: SubmittedJob, rows: tuple[_Row, ...], fleet: Fleet, places: Places
) -> tuple[Floats, tuple[int, ...]]:
    """Seconds of a whole job on each place, and the useful places; remembered for all rows of a job."""
    known = _known(job, fleet)
    if rows is not known.rows:
        seconds = _seconds(rows, places)
        return seconds, useful_places(seconds, places)
    if places not in known.on:
        if len(known.on) >= _MOST_TABLES:
            known.on.clear()
        seconds = _seconds(rows, places)
        known.on[places] = seconds, useful_places(seconds, places)
    return known.on[places]


def _seconds(rows: Iterable[_Row], places: Places) -> Floats:
    seconds = np.full(len(places), math.inf)
    for row in rows:
        for index in places.of_configuration.get(row.configuration, ()):
            seconds[index] = min(seconds[index], row.seconds)
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


def spanning_configurations(jobs: Sequence[SubmittedJob]) -> frozenset[Configuration]:
    """Configurations of several nodes that some job can use."""
    return frozenset(each for job in jobs for each in job.seconds if each.nodes > 1)


def table_of(state: State, places: Places, most_places: int) -> OptionTable:
    """Active jobs of a state."""
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
        row, best = _on_places(job.job, _admissible(state, job), state.fleet, places)
        fixed[index] = job.running is not None and not job.may_stop(state.now)
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
    return OptionTable(
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
        useful=_pad_places(useful, seconds, most_places),
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


def _pad_places(useful: Sequence[tuple[int, ...]], seconds: Floats, most: int) -> Integers:
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
