"""What jobs would do if node time had a price, for the policies `price`, `milp` and `auto`.

One look at a state: options, plans, prices, and what each first step of each job would cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from foretrain.scheduling.options import (
    Floats,
    OptionTable,
    Places,
    places_of,
    spanning_configurations,
    table_of,
)
from foretrain.scheduling.plans import Detail, Plans, plans_of, prices_of
from foretrain.scheduling.state import State

_NO_NODES = 1e-6
_LARGE = 150
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
    """

    detail: Detail = field(default_factory=Detail)
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
            return replace(self, detail=Detail(10, 2, 2, 6), steps=min(self.steps, 40))
        return replace(self, detail=Detail(8, 1, 1, 4), steps=min(self.steps, 30))


@dataclass(frozen=True, eq=False)
class View:
    """What a policy needs to select: jobs, places, and the cost of first steps.

    `usd` is what all jobs cost from now on if the nodes could be divided at will.
    """

    table: OptionTable
    places: Places
    values: Values
    prices: Floats
    periods: Floats
    usd: float


def view_of(state: State, settings: Settings) -> View:
    """Plans and prices of a state with at least one active job."""
    settings = settings.for_jobs(len(state.jobs))
    jobs = [each.job for each in state.jobs.values()]
    places = places_of(state.fleet, spanning_configurations(jobs), settings.alone)
    table = table_of(state, places, settings.detail.places)
    groups = len(state.fleet.groups)
    periods = periods_of(table, places, state, settings)
    plans = plans_of(table, places, groups, periods, settings.detail)
    lengths = np.diff(periods, prepend=0.0)
    nodes = np.array([max(state.available(group), _NO_NODES) for group in range(groups)])
    capacity = (nodes[:, None] * lengths).ravel()
    floors = (
        _floor(places, groups, periods, settings.haste),
        _floor(places, groups, periods, settings.haste_if_scarce),
    )
    prices = prices_of(plans, capacity, floors, settings.steps)
    return View(table, places, values_of(plans, prices.usd, table), prices.usd, periods, prices.dual)


def _floor(places: Places, groups: int, periods: Floats, haste: float) -> Floats:
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
    seconds = table.work[:, None] * table.seconds
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
    growth = np.linspace(0.0, 1.0, settings.detail.periods - 1)
    return np.append(first * (end / first) ** growth, math.inf)


@dataclass(frozen=True, eq=False)
class Values:
    """What the rest of each active job costs if it runs on a useful place now, or waits until `until`.

    `nodes` are the nodes used until then (a share, for a job that shares a node or ends before); `change` and
    `wait_change` are when the plans behind these figures do something else.
    """

    run: Floats
    nodes: Floats
    wait: Floats
    change: Floats
    wait_change: Floats
    until: float


def values_of(plans: Plans, prices: Floats, table: OptionTable) -> Values:
    """The cheapest plan of each first step; node time of the first period is left to the selection."""
    active = len(table.names)
    later = prices.copy()
    later[:: len(plans.periods)] = 0.0
    total = plans.cost[:active] + plans.node_seconds[:active] @ later
    width = table.useful.shape[1]
    run = np.full((active, width), np.inf)
    nodes = np.zeros((active, width))
    change = np.full((active, width), np.inf)
    rows = np.arange(active)
    for position in range(width):
        columns = np.flatnonzero(plans.position == position)
        best = columns[total[:, columns].argmin(axis=1)]
        run[:, position] = total[rows, best]
        change[:, position] = plans.change[rows, best]
        nodes[:, position] = plans.node_seconds[rows, best, :: len(plans.periods)].sum(axis=1)
    columns = np.flatnonzero(plans.position < 0)
    best = columns[total[:, columns].argmin(axis=1)]
    first = float(plans.periods[0])
    return Values(run, nodes / first, total[rows, best], change, plans.change[rows, best], first)
