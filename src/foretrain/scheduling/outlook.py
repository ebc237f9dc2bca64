"""What jobs would do if node time had a price, for the policies `price`, `milp` and `auto`.

A plan runs a job to its end: on one place; on two, one after the other; at once or later.

With work W (a share of the job), full times T₁ and T₂ on two places and D seconds to the deadline, a job that
changes from the first to the second after x seconds ends exactly at its deadline if

    x / T₁ + (D - x) / T₂ = W.

Other changes happen at the ends of periods. A plan costs its nodes (without idle GPUs) and its lateness; its
use of node time is counted by group and period.

Prices of node time, μ for each group of nodes and period, are those at which the cheapest plans of all jobs
fit into the nodes. They maximise the dual of the plan selection problem

    Σ_jobs min_plans (cost + Σ μ · node seconds) - Σ μ · capacity,

by steps along its subgradient, demand minus capacity, with steps that shrink.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from foretrain.scheduling.options import (
    Floats,
    Integers,
    OptionTable,
    Places,
    places_of,
    spanning_configurations,
    table_of,
)
from foretrain.scheduling.state import State
from foretrain.ties import round_digits

_ALMOST = 1e-9
"""Shares of a job below this are rounding: a change of place there would move no work."""
_NOW = np.zeros(1)
_NO_NODES = 1e-6
"""A group whose nodes all failed has almost no capacity instead of none."""
_LARGE = 150
"""Jobs up to which plans are looked at in full; beyond, fewer periods and places keep a decision quick."""
_HUGE = 1000
"""Numbers of jobs from which plans are looked at less finely, so that a decision stays quick."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How far and how finely to look ahead.

    `haste`: how much dearer node time is assumed to become until the end of the horizon, relative to its
    price, so that of plans that cost nearly the same the one that ends earlier is taken; jobs to come may
    need the nodes, the more so if they are scarce already. `first_period`: length of the first period as a
    share of a typical job. `alone`: whether a number of GPUs for which there is no node is priced like the
    next larger node, or as a share of it.

    How many plans are considered: `periods`, starts with a change at the deadline, ends of periods at which a
    job that starts now may change, and places of each job.
    """

    periods: int = 12
    deadline_starts: int = 4
    changes: int = 4
    places: int = 12
    first_period: float = 0.04
    alone: bool = True
    haste: float = 0.1
    haste_if_scarce: float = 1.0
    steps: int = 60

    def for_jobs(self, count: int) -> Settings:
        """Settings that keep a decision on `count` jobs quick."""
        if count <= _LARGE:
            return self
        if count <= _HUGE:
            counts, steps = (10, 2, 2, 6), min(self.steps, 40)
        else:
            counts, steps = (8, 1, 1, 4), min(self.steps, 30)
        periods, starts, changes, places = counts
        return replace(
            self, periods=periods, deadline_starts=starts, changes=changes, places=places, steps=steps
        )


@dataclass(frozen=True, eq=False)
class Outlook:
    """Jobs, places, and what each first step of each active job costs to its end, lateness included.

    `run` is that of starting on a useful place now, `wait` that of waiting to the end of the first period
    (`until`); `nodes` are the nodes used until then (a share, for a job that shares a node or ends before).
    `change` and `wait_change` are when the plans behind these figures do something else. `usd` is what all
    jobs cost from now on if the nodes could be divided at will.
    """

    table: OptionTable
    places: Places
    prices: Floats
    periods: Floats
    usd: float
    run: Floats
    nodes: Floats
    wait: Floats
    change: Floats
    wait_change: Floats

    @property
    def until(self) -> float:
        """The end of the first period."""
        return float(self.periods[0])


def look_ahead(state: State, settings: Settings) -> Outlook:
    """Plans and prices of a state with at least one active job.

    Node time of the first period is left to the selection of first steps, so it has no price here.
    """
    settings = settings.for_jobs(len(state.jobs))
    jobs = [each.job for each in state.jobs.values()]
    places = places_of(state.fleet, spanning_configurations(jobs), settings.alone)
    table = table_of(state, places, settings.places)
    groups = len(state.fleet.groups)
    periods = periods_of(table, places, state, settings)
    plans = plans_of(table, places, groups, periods, settings)
    lengths = np.diff(periods, prepend=0.0)
    available = np.array([max(state.available(group), _NO_NODES) for group in range(groups)])
    capacity = (available[:, None] * lengths).ravel()
    floors = (
        _floor(places, groups, periods, settings.haste),
        _floor(places, groups, periods, settings.haste_if_scarce),
    )
    prices, dual = prices_of(plans, capacity, floors, settings.steps)
    later = prices.copy()
    later[:: len(periods)] = 0.0
    total = plans.cost + _sum_products(plans.node_seconds, later)
    active, width = table.useful.shape
    rows = np.arange(active)
    run, nodes, change = np.full((3, active, width), np.inf)
    nodes[:] = 0.0
    for position in range(width):
        columns = np.flatnonzero(plans.position == position)
        best = columns[total[:, columns].argmin(axis=1)]
        run[:, position] = total[rows, best]
        change[:, position] = plans.change[rows, best]
        nodes[:, position] = plans.node_seconds[rows, best, :: len(periods)].sum(axis=1)
    columns = np.flatnonzero(plans.position < 0)
    best = columns[total[:, columns].argmin(axis=1)]
    return Outlook(
        table=table,
        places=places,
        prices=prices,
        periods=periods,
        usd=dual,
        run=run,
        nodes=nodes / float(periods[0]),
        wait=total[rows, best],
        change=change,
        wait_change=plans.change[rows, best],
    )


def _floor(places: Places, groups: int, periods: Floats, haste: float) -> Floats:
    """The least price of node time by group and period: it rises to `haste` times the price of a node."""
    middles = np.append((periods[:-1] + np.append(0.0, periods[:-2])) / 2, periods[-2])
    node_usd = np.array(
        [
            max((kind.usd_per_second[-1] for kind in places.kinds if kind.group == group), default=0.0)
            for group in range(groups)
        ]
    )
    rise = middles / max(float(periods[-2]), 1e-9)
    return np.outer(haste * np.maximum(node_usd, 1e-9), rise).ravel()


def periods_of(table: OptionTable, places: Places, state: State, settings: Settings) -> Floats:
    """Ends of periods: they get longer, up to when all work could be done twice; the last never ends."""
    left = table.work[:, None] > 0  # a job that only has to end needs no period, wherever it may run
    seconds = np.where(left, np.where(left, table.work[:, None], 1.0) * table.seconds, math.inf)
    shortest = seconds.min(axis=1)
    runs = np.isfinite(shortest)
    if not runs.any():
        return np.array([1.0, 2.0, math.inf])
    nodes = sum(state.available(group) for group in range(len(state.fleet.groups)))
    node_seconds = (seconds * places.fraction).min(axis=1)[runs].sum()
    cheapest = np.where(runs, (seconds * places.usd).argmin(axis=1), 0)
    longest = seconds[np.arange(len(cheapest)), cheapest][runs]
    end = max(float(node_seconds) / max(nodes, 1) * 2.0, float(longest.max()), 1e-3)
    first = float(np.median(shortest[runs])) * settings.first_period
    first = min(max(first, end / 2000), end / 8)
    growth = np.linspace(0.0, 1.0, settings.periods - 1)
    # Powers differ between CPUs in the last place, and plans that cost the same would be chosen by it.
    return np.append(round_digits(first * (end / first) ** growth), math.inf)


# ---------------------------------------------------------------- plans


@dataclass(frozen=True, eq=False)
class Plans:
    """Plans of all jobs (rows; infinite cost where one is impossible).

    Plans of a column start on the same useful place, at `position` (-1: they wait).
    `node_seconds[job, plan, group·period]` counts the nodes used; `change` is when a plan first does
    something else than now (starts, or changes its place).
    """

    cost: Floats
    position: Integers
    change: Floats
    node_seconds: Floats
    periods: Floats


@dataclass(frozen=True, eq=False)
class _Useful:
    """Times of each job on its useful places; infinite where there are fewer."""

    table: OptionTable
    seconds: Floats
    overhead: Floats
    later: Floats
    switch: Floats
    work: Floats
    deadline: Floats

    def starts(self, times: Floats) -> Floats:
        """Starts of every job at some times."""
        return np.broadcast_to(times, (len(self.work), len(times)))


@dataclass(frozen=True, eq=False)
class _Block:
    """Plans of one shape: first place from `start` to `middle`, second place until `end`.

    Arrays over jobs and plans; `one` and `two` are positions among the useful places.
    """

    one: Integers
    two: Integers
    start: Floats
    middle: Floats
    end: Floats
    valid: NDArray[np.bool_]
    now: bool


def plans_of(table: OptionTable, places: Places, groups: int, periods: Floats, settings: Settings) -> Plans:
    """All plans; `periods` are the ends of the periods, of which the last never ends."""
    index = np.maximum(table.useful, 0)
    seconds = np.take_along_axis(table.seconds, index, axis=1)
    useful = _Useful(
        table,
        np.where(table.useful >= 0, seconds, math.inf),
        np.take_along_axis(table.overhead, index, axis=1),
        np.take_along_axis(table.later, index, axis=1),
        np.take_along_axis(table.switch, index, axis=1),
        table.work[:, None],
        table.deadline[:, None],
    )
    ends = periods[:-1]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        blocks = [
            _single(useful, useful.starts(_NOW), now=True),
            _single(useful, useful.starts(ends), now=False),
            _just_in_time(useful, float(ends[0])),
            _change_at_deadline(useful, useful.starts(_NOW), now=True),
            _change_at_deadline(useful, useful.starts(_spread(ends, settings.deadline_starts)), now=False),
            _change_at(useful, _spread(ends, settings.changes)),
        ]
        parts = [_price_plans(block, useful, places, groups, periods) for block in blocks]
    return Plans(
        cost=np.concatenate([part.cost for part in parts], axis=1),
        position=np.concatenate([part.position for part in parts]),
        change=np.concatenate([part.change for part in parts], axis=1),
        node_seconds=np.concatenate([part.node_seconds for part in parts], axis=1),
        periods=periods,
    )


def _spread(values: Floats, count: int) -> Floats:
    """Some of the values, the early ones more densely."""
    if len(values) <= count:
        return values
    chosen = np.unique(np.round(np.linspace(0, 1, count) ** 1.5 * (len(values) - 1)).astype(np.int64))
    return np.asarray(values[chosen])


def _every(starts: int, positions: Integers) -> Integers:
    """Positions for every start, start by start."""
    return np.tile(positions, starts)


def _single(useful: _Useful, starts: Floats, now: bool) -> _Block:
    width = useful.seconds.shape[1]
    one = _every(starts.shape[1], np.arange(width))
    start = np.repeat(starts, width, axis=1)
    return _run(useful, one, start, now)


def _run(useful: _Useful, one: Integers, start: Floats, now: bool) -> _Block:
    """Run on one place from `start` to the end."""
    overhead = (useful.overhead if now else useful.later)[:, one]
    end = start + overhead + useful.work * useful.seconds[:, one]
    return _Block(one, one, start, end, end, np.isfinite(end), now)


def _just_in_time(useful: _Useful, earliest: float) -> _Block:
    """Wait, then run on one place so that the job ends at its deadline."""
    latest = useful.deadline - useful.later - useful.work * useful.seconds
    waits = np.isfinite(latest) & (latest > earliest)
    block = _run(useful, np.arange(latest.shape[1]), np.where(waits, latest, 0.0), now=False)
    return replace(block, valid=block.valid & waits)


def _pairs(useful: _Useful, starts: int) -> tuple[Integers, Integers]:
    """Positions of every ordered pair of different useful places, for every start."""
    one, two = np.nonzero(~np.eye(useful.seconds.shape[1], dtype=bool))
    return _every(starts, one), _every(starts, two)


def _change_at_deadline(useful: _Useful, starts: Floats, now: bool) -> _Block:
    one, two = _pairs(useful, starts.shape[1])
    start = np.repeat(starts, len(one) // starts.shape[1], axis=1)
    before = (useful.overhead if now else useful.later)[:, one]
    left = useful.deadline - start - before - useful.switch[:, two]
    first, second = 1 / useful.seconds[:, one], 1 / useful.seconds[:, two]
    x = (useful.work - left * second) / (first - second)
    exist = (first > 0) & (second > 0)
    valid = exist & np.isfinite(x) & (x > _ALMOST) & (x < left - _ALMOST)
    end = np.broadcast_to(useful.deadline, x.shape)
    return _Block(one, two, start, start + before + x, end, valid, now)


def _change_at(useful: _Useful, times: Floats) -> _Block:
    """Start now and change the place at given times."""
    one, two = _pairs(useful, len(times))
    at = np.repeat(times, len(one) // max(len(times), 1))
    before = useful.overhead[:, one]
    left = useful.work - (at - before) / useful.seconds[:, one]
    end = at + useful.switch[:, two] + left * useful.seconds[:, two]
    exist = np.isfinite(useful.seconds[:, one]) & np.isfinite(end)
    start, middle = np.zeros(before.shape), np.broadcast_to(at, before.shape)
    return _Block(one, two, start, middle, end, exist & (left > _ALMOST) & (at > before), now=True)


def _price_plans(block: _Block, useful: _Useful, places: Places, groups: int, periods: Floats) -> Plans:
    valid = block.valid
    start, middle, end = (np.where(valid, each, 0.0) for each in (block.start, block.middle, block.end))
    index = np.maximum(useful.table.useful, 0)
    first, second = index[:, block.one], index[:, block.two]
    changes = block.two is not block.one
    usd = places.usd[first] * (middle - start)
    if changes:
        usd += places.usd[second] * (end - middle)
    late = np.maximum(0.0, end - useful.deadline)
    with np.errstate(invalid="ignore"):
        lateness = np.where(late > 0, useful.table.weight[:, None] * late, 0.0)
    cost = np.where(valid, usd + lateness, math.inf)
    node_seconds = _used_node_seconds(first, start, middle, places, groups, periods)
    if changes:
        node_seconds += _used_node_seconds(second, middle, end, places, groups, periods)
    change = (middle if changes else np.full(cost.shape, math.inf)) if block.now else start
    return Plans(
        cost=cost,
        position=block.one if block.now else np.full(len(block.one), -1, dtype=np.int64),
        change=np.where(valid, change, math.inf),
        node_seconds=node_seconds,
        periods=periods,
    )


def _used_node_seconds(
    place: Integers, start: Floats, end: Floats, places: Places, groups: int, periods: Floats
) -> Floats:
    """Node-seconds by group and period."""
    used = _overlaps(start, end, periods)
    used *= places.fraction[place][..., None]
    if groups == 1:
        return used
    of_group = places.group[place][..., None] == np.arange(groups)
    by_group: Floats = of_group[..., None] * used[..., None, :]
    return by_group.reshape(*place.shape, groups * len(periods))


def _overlaps(start: Floats, end: Floats, periods: Floats) -> Floats:
    """Seconds of each interval in each period: differences of the time covered up to each end."""
    covered = np.minimum(end[..., None], periods) - start[..., None]
    np.maximum(covered, 0.0, out=covered)
    covered[..., 1:] -= covered[..., :-1].copy()
    return covered


# ---------------------------------------------------------------- prices


def _sum_products(values: Floats, weights: Floats) -> Floats:
    """`values @ weights`, added in one order on every CPU: a matrix product has another order on each kind,
    and equal plans would be chosen by the last bit.
    """
    return np.asarray((values * weights).sum(axis=-1))


def prices_of(
    plans: Plans, capacity: Floats, floors: tuple[Floats, Floats], steps: int
) -> tuple[Floats, float]:
    """USD per node-second by group and period, never below a floor, and the value of the dual there.

    `capacity` is in node-seconds, infinite in the last period. The first of the floors holds if all plans fit
    at it, else the second. The dual counts what plans cost in truth: prices above the floor cancel out, the
    floor itself is left out.
    """
    limited = np.isfinite(capacity)
    room = np.where(limited, capacity, 1.0)
    finite = np.where(limited, capacity, 0.0)
    rows = np.arange(len(plans.cost))

    def cheapest_plans(prices: Floats, floor: Floats) -> tuple[float, Floats, float]:
        """The dual without the floor, the demand, and the cost of the cheapest plans at given prices."""
        choice = (plans.cost + _sum_products(plans.node_seconds, prices)).argmin(axis=1)
        cost = plans.cost[rows, choice]
        usd = np.where(np.isfinite(cost), cost, 0.0).sum()
        demand = plans.node_seconds[rows, choice].sum(axis=0)
        return float(usd + _sum_products(prices - floor, demand - finite)), demand, float(usd)

    dual, demand, _ = cheapest_plans(floors[0], floors[0])
    if not (demand > capacity).any():
        return floors[0], dual
    floor = floors[1]
    prices, averaged = floor.copy(), np.zeros_like(floor)
    best, best_dual = prices, -np.inf
    scale = 0.0
    for step in range(steps):
        dual, demand, cost = cheapest_plans(prices, floor)
        if dual > best_dual:
            best, best_dual = prices, dual
        scale = scale or cost / max(float(demand.sum()), 1e-9)
        excess = np.where(limited, demand / room - 1.0, 0.0)
        # Steps that shrink like 1/step: their sum is infinite, so any price can be reached from the floor.
        move = scale / (1.0 + step / 8.0)
        prices = np.maximum(floor, prices + move * np.clip(excess, -1.0, 1.0))
        # Subgradient steps circle around the optimum; the mean of the later half is often nearer to it.
        if 2 * step >= steps:
            averaged += prices / (steps - (steps + 1) // 2)
    dual = cheapest_plans(averaged, floor)[0]
    return (averaged, dual) if dual > best_dual else (best, best_dual)
