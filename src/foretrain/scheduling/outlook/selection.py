"""Which jobs run now, and where: the cheapest places that fit together.

Every job takes the place with the least cost of its rest plus ν · nodes used, or waits. ν, one for each group
of nodes, is the lowest price at which the choices fit; then jobs that gain most take what room is left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foretrain.scheduling.decision import fixed_jobs
from foretrain.scheduling.outlook.options import Floats, Integers, Places, Table
from foretrain.scheduling.outlook.packing import nodes_needed
from foretrain.scheduling.outlook.plans import Plans
from foretrain.scheduling.state import State

_HALVINGS = 24
_ROUNDS = 4
_MOST_TRIES = 300


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


def values_of(plans: Plans, prices: Floats, table: Table) -> Values:
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


@dataclass(frozen=True, eq=False)
class Room:
    """Whether places fit together: nodes of each group beside those of jobs that may not be moved."""

    places: Places
    available: tuple[int, ...]
    free: tuple[tuple[int, ...], ...]
    of_kind: tuple[Integers, ...]
    spanning: Integers

    def needed(self, counts: Integers) -> Integers:
        """Nodes of each group that `counts` jobs on each place need."""
        nodes = np.zeros(len(self.available), dtype=np.int64)
        for kind, indexes, free in zip(self.places.kinds, self.of_kind, self.free, strict=True):
            of_size = counts[indexes]
            if of_size.any():
                nodes[kind.group] += nodes_needed(tuple(of_size.tolist()), kind.most_gpus, free)
        for index in self.spanning:
            nodes[self.places.group[index]] += counts[index] * self.places.nodes[index]
        return nodes

    def fits(self, counts: Integers) -> bool:
        """Whether the nodes suffice."""
        return bool((self.needed(counts) <= self.available).all())


def room_of(state: State, places: Places) -> Room:
    """The nodes of a state for jobs that may be moved."""
    available = [state.available(group) for group in range(len(state.fleet.groups))]
    used: dict[int, int] = {}
    types: dict[int, str] = {}
    for running in fixed_jobs(state).values():
        for node in running.nodes:
            used[node] = used.get(node, 0) + running.configuration.gpus
            types[node] = running.configuration.node_type
    free: list[list[int]] = [[] for _ in places.kinds]
    for node, gpus in used.items():
        group = state.fleet.group_of(node)
        available[group] -= 1
        for index, kind in enumerate(places.kinds):
            if kind.group == group and types[node] in kind.types:
                free[index].append(state.fleet.types[types[node]].gpus - gpus)
    single = places.nodes == 1
    return Room(
        places,
        tuple(available),
        tuple(tuple(sorted((each for each in rooms if each > 0), reverse=True)) for rooms in free),
        tuple(np.flatnonzero(single & (places.kind == index)) for index in range(len(places.kinds))),
        np.flatnonzero(~single),
    )


def selected(values: Values, table: Table, places: Places, room: Room) -> Integers:
    """The position of each active job's place, -1 if it waits."""
    active = len(table.names)
    useful = table.useful[:active]
    fixed = table.fixed[:active]
    padded = np.maximum(useful, 0)
    fraction = values.nodes
    group = places.group[padded]
    costs = np.concatenate([values.run, values.wait[:, None]], axis=1)
    never = ~np.isfinite(costs).any(axis=1)
    costs[never, -1] = 0.0
    costs[fixed, -1] = np.inf

    def choice_at(price: Floats) -> Integers:
        with np.errstate(invalid="ignore"):
            total = costs.copy()
            total[:, :-1] += price[group] * fraction
        return np.asarray(total.argmin(axis=1))

    def counts_of(choice: Integers) -> Integers:
        moving = (choice < useful.shape[1]) & ~fixed
        return np.bincount(useful[moving, choice[moving]], minlength=len(places))

    price = _fitting_price(lambda nu: room.needed(counts_of(choice_at(nu))), room)
    choice = choice_at(price)
    counts = counts_of(choice)
    _fill(costs, choice, counts, useful, fixed, fraction, room)
    return np.where(choice == useful.shape[1], -1, choice)


def _fitting_price(needed: Callable[[Floats], Integers], room: Room) -> Floats:
    """The lowest price of each group at which its nodes suffice."""
    price = np.zeros(len(room.available))
    for _ in range(1 if len(price) == 1 else 2):
        for group in range(len(price)):
            price[group] = 0.0
            if needed(price)[group] <= room.available[group]:
                continue
            low, high = 0.0, 1e-3
            while high < 1e12:
                price[group] = high
                if needed(price)[group] <= room.available[group]:
                    break
                low, high = high, high * 4
            for _ in range(_HALVINGS):
                price[group] = (low + high) / 2
                if needed(price)[group] <= room.available[group]:
                    high = price[group]
                else:
                    low = price[group]
            price[group] = high
    return price


def _fill(
    costs: Floats,
    choice: Integers,
    counts: Integers,
    useful: Integers,
    fixed: NDArray[np.bool_],
    fraction: Floats,
    room: Room,
) -> None:
    """Let jobs that gain most for the nodes they use take the room that is left."""
    width = useful.shape[1]
    rows = np.arange(len(choice))
    for _ in range(_ROUNDS):
        now = costs[rows, choice]
        used = np.where(choice < width, fraction[rows, np.minimum(choice, width - 1)], 0.0)
        with np.errstate(invalid="ignore"):
            gain = np.where(np.isinf(now)[:, None], 0.0, now[:, None] - costs[:, :width])
        gain[fixed] = 0.0
        score = np.where(gain > 1e-9, gain / np.maximum(fraction - used[:, None], 1e-3), 0.0)
        order = np.argsort(-score, axis=None, kind="stable")[: min(_MOST_TRIES, np.count_nonzero(score > 0))]
        moved: set[int] = set()
        for row, column in zip(*np.unravel_index(order, score.shape), strict=True):
            if int(row) not in moved and _takes(int(row), int(column), choice, counts, useful, room):
                moved.add(int(row))
        if not moved:
            return


def _takes(row: int, column: int, choice: Integers, counts: Integers, useful: Integers, room: Room) -> bool:
    """Move a job to another place if that fits."""
    before = choice[row]
    trial = counts.copy()
    if before < useful.shape[1]:
        trial[useful[row, before]] -= 1
    trial[useful[row, column]] += 1
    if not room.fits(trial):
        return False
    counts[:] = trial
    choice[row] = column
    return True
