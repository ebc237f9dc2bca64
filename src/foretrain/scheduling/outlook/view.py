"""One look at a state: options, plans, prices, and what each first step of each job would cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretrain.scheduling.outlook.arrivals import expected_jobs
from foretrain.scheduling.outlook.options import (
    Floats,
    Places,
    Table,
    places_of,
    spanning_configurations,
    expected_table,
    table_of,
)
from foretrain.scheduling.outlook.plans import Detail, Plans, plans_of
from foretrain.scheduling.outlook.prices import prices_of
from foretrain.scheduling.outlook.selection import Values, values_of
from foretrain.scheduling.state import State


_LARGE = 150
_HUGE = 1000
"""Numbers of jobs from which plans are looked at less finely, so that a decision stays quick."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How far and how finely to look ahead.

    `expected_per_node`: submissions to expect, for each node. `haste`: how much dearer node time is assumed to
    become until the end of the horizon, relative to its price, so that of plans that cost the same the one that
    ends earlier is taken.
    """

    detail: Detail = Detail()
    expected_per_node: float = 0.0
    scenarios: int = 1
    usable_later: float = 1.0
    first_period: float = 0.04
    alone: bool = True
    haste: float = 0.1
    steps: int = 60


    def for_jobs(self, count: int) -> Settings:
        """Settings that keep a decision on so many jobs quick."""
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

    table: Table
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
    count = round(settings.expected_per_node * state.fleet.nodes)
    scenarios = [
        expected_table(expected, state.now, places, settings.detail.places)
        for scenario in range(settings.scenarios)
        if (expected := expected_jobs(state, count, scenario))
    ]
    groups = len(state.fleet.groups)
    periods = periods_of((table, *scenarios[:1]), places, state, settings)
    plans = plans_of(table, places, groups, periods, settings.detail)
    lengths = np.diff(periods, prepend=0.0)
    nodes = np.array([state.available(group) for group in range(groups)], dtype=float)
    usable = np.where(np.arange(len(periods)) > 0, settings.usable_later, 1.0)
    capacity = (nodes[:, None] * lengths * usable).ravel()
    floor = _floor(places, groups, periods, settings.haste)
    solved = [
        prices_of((plans, *others), capacity, floor, settings.steps)
        for others in _plans_expected(scenarios, places, groups, periods, settings)
    ]
    prices = np.mean([each.usd for each in solved], axis=0)
    usd = float(np.mean([each.dual for each in solved]))
    return View(table, places, values_of(plans, prices, table), prices, periods, usd)


def _plans_expected(
    scenarios: Sequence[Table], places: Places, groups: int, periods: Floats, settings: Settings
) -> list[tuple[Plans, ...]]:
    if not scenarios:
        return [()]
    return [(plans_of(each, places, groups, periods, settings.detail),) for each in scenarios]


def _floor(places: Places, groups: int, periods: Floats, haste: float) -> Floats:
    middles = np.append((periods[:-1] + np.append(0.0, periods[:-2])) / 2, periods[-2])
    node_usd = np.array([
        max((kind.usd_per_second[-1] for kind in places.kinds if kind.group == group), default=0.0)
        for group in range(groups)
    ])
    return (haste * np.maximum(node_usd, 1e-9)[:, None] * middles / max(periods[-2], 1e-9)).ravel()


def periods_of(tables: Sequence[Table], places: Places, state: State, settings: Settings) -> Floats:
    """Ends of periods: they get longer, up to when all work could be done twice; the last never ends."""
    work = np.concatenate([table.work for table in tables])
    seconds = work[:, None] * np.concatenate([table.seconds for table in tables])
    available = np.concatenate([table.available for table in tables])
    shortest = seconds.min(axis=1)
    runs = np.isfinite(shortest)
    if not runs.any():
        return np.array([1.0, 2.0, math.inf])
    nodes = sum(state.available(group) for group in range(len(state.fleet.groups)))
    node_seconds = (seconds * places.fraction).min(axis=1)[runs].sum()
    cheapest = np.where(runs, (seconds * places.usd).argmin(axis=1), 0)
    longest = seconds[np.arange(len(cheapest)), cheapest][runs]
    end = max(float(node_seconds) / max(nodes, 1) * 2.0, float(np.max(available[runs] + longest)), 1.0)
    active = shortest[: len(tables[0].names)][runs[: len(tables[0].names)]]
    first = float(np.median(active)) * settings.first_period if len(active) else end / 50
    first = min(max(first, end / 2000, 1e-3), end / 8)
    growth = np.linspace(0.0, 1.0, settings.detail.periods - 1)
    return np.append(first * (end / first) ** growth, math.inf)
