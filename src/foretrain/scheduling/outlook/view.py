"""One look at a state: options, plans, prices, and what each first step of each job would cost."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from foretrain.scheduling.outlook.arrivals import expected_jobs
from foretrain.scheduling.outlook.options import (
    Floats,
    Places,
    Table,
    places_of,
    spanning_configurations,
    table_of,
)
from foretrain.scheduling.outlook.plans import Detail, plans_of
from foretrain.scheduling.outlook.prices import prices_of
from foretrain.scheduling.outlook.selection import Values, values_of
from foretrain.scheduling.state import State


@dataclass(frozen=True, slots=True)
class Settings:
    """How far and how finely to look ahead.

    `expected_per_node`: submissions to expect, for each node. `haste`: how much dearer node time is assumed to
    become until the end of the horizon, relative to its price, so that of plans that cost the same the one that
    ends earlier is taken.
    """

    detail: Detail = Detail()
    expected_per_node: float = 2.0
    haste: float = 0.02
    steps: int = 60


@dataclass(frozen=True, eq=False)
class View:
    """What a policy needs to select: jobs, places, and the cost of first steps."""

    table: Table
    places: Places
    values: Values
    prices: Floats
    periods: Floats


def view_of(state: State, settings: Settings) -> View:
    """Plans and prices of a state with at least one active job."""
    expected = expected_jobs(state, round(settings.expected_per_node * state.fleet.nodes))
    jobs = [each.job for each in state.jobs.values()]
    places = places_of(state.fleet, spanning_configurations(jobs))
    table = table_of(state, places, expected)
    groups = len(state.fleet.groups)
    periods = periods_of(table, places, state, settings.detail.periods)
    plans = plans_of(table, places, groups, periods, settings.detail)
    lengths = np.diff(periods, prepend=0.0)
    nodes = np.array([state.available(group) for group in range(groups)], dtype=float)
    capacity = (nodes[:, None] * lengths).ravel()
    rise = np.append(np.cumsum(lengths[:-1]) - lengths[:-1] / 2, periods[-2] if len(periods) > 1 else 0.0)
    rise = rise / max(float(rise[-1]), 1e-9)
    node_usd = np.array([
        max((kind.usd_per_second[-1] for kind in places.kinds if kind.group == group), default=0.0)
        for group in range(groups)
    ])
    floor = (settings.haste * np.maximum(node_usd, 1e-9)[:, None] * rise).ravel()
    prices = prices_of(plans, capacity, floor, settings.steps)
    return View(table, places, values_of(plans, prices.usd, table), prices.usd, periods)


def periods_of(table: Table, places: Places, state: State, count: int) -> Floats:
    """Ends of periods: they get longer, up to when all work could be done twice; the last never ends."""
    shortest = (table.work[:, None] * table.seconds).min(axis=1)
    runs = np.isfinite(shortest)
    if not runs.any():
        return np.array([1.0, math.inf])
    nodes = sum(state.available(group) for group in range(len(state.fleet.groups)))
    node_seconds = (table.work[:, None] * table.seconds * places.fraction).min(axis=1)[runs].sum()
    cheapest = np.where(runs, (table.work[:, None] * table.seconds * places.usd).argmin(axis=1), 0)
    longest = (table.work * table.seconds[np.arange(len(cheapest)), cheapest])[runs]
    end = max(
        float(node_seconds) / max(nodes, 1) * 2.0,
        float(np.max(table.available[runs] + longest)),
        1.0,
    )
    active = shortest[: len(table.names)][runs[: len(table.names)]]
    first = float(np.median(active)) * 0.25 if len(active) else end / 50
    first = min(max(first, end / 200, 1e-3), end / 8)
    growth = np.linspace(0.0, 1.0, count - 1)
    return np.append(first * (end / first) ** growth, math.inf)
