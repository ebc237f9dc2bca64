"""Prices of node time: every job follows its cheapest plan, at prices at which all plans fit.

Which jobs run now: every job takes the place with the least cost of its rest plus ν · nodes used, or waits.
ν, one for each group of nodes, is the lowest price at which the choices fit; then jobs that gain most take
what room is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from foretrain.scheduling.decision import Decision
from foretrain.scheduling.loop import Policy
from foretrain.scheduling.options import Floats, Integers, OptionTable, Places
from foretrain.scheduling.outlook import Settings, Values, View, view_of
from foretrain.scheduling.packing import Room, pack, room_of
from foretrain.scheduling.problem import Configuration
from foretrain.scheduling.state import State
from foretrain.units import format_duration, format_money

_HALVINGS = 24
_ROUNDS = 4
_MOST_TRIES = 300


@dataclass(frozen=True)
class PricePolicy(Policy):
    """The price of a node-second in each coming period is raised until the cheapest plans of all jobs, known
    and expected, fit into the nodes. A plan runs a job on one place, on two one after the other, or later.
    Then the jobs whose first steps save most take the nodes there are.
    """

    name = "price"
    summary = "Shadow prices of node time; every job follows its cheapest plan. Scales to thousands of jobs."

    settings: Settings = field(default_factory=Settings)

    def decide(self, state: State) -> Decision:
        """What runs from now on."""
        if not state.jobs:
            return Decision()
        view = view_of(state, self.settings)
        choice = select(view.values, view.table, view.places, room_of(state, view.places))
        return decision_of(state, view, choice)


def decision_of(state: State, view: View, choice: Integers, notes: tuple[str, ...] = ()) -> Decision:
    """Nodes for a selection, the next time to look again, and why jobs wait."""
    table, places, values = view.table, view.places, view.values
    rows = {name: row for row, name in enumerate(table.names)}
    chosen = [(name, int(table.useful[row, choice[row]])) for name, row in rows.items() if choice[row] >= 0]

    def gains(name: str, node_type: str, gpus: int, spare: int) -> Iterator[tuple[float, int]]:
        """USD that wider places of its kind of node save a job; the further GPUs are paid anyway."""
        row = rows[name]
        now, here = values.run[row, choice[row]], table.useful[row, choice[row]]
        for position, place in enumerate(table.useful[row]):
            wider = Configuration(node_type, int(places.gpus[place]))
            if place < 0 or places.group[place] != places.group[here] or wider not in places.types_of[place]:
                continue
            if gpus < wider.gpus <= gpus + spare and wider in state.jobs[name].job.seconds:
                gain = now - values.run[row, position] + (places.usd[place] - places.usd[here]) * values.until
                if gain > 1e-9:
                    yield float(gain), wider.gpus

    packing = pack(state, places, chosen, gains)
    return Decision(
        packing.loads, wake_at=_wake_at(state, view, choice), notes=notes, reasons=_reasons(view, choice)
    )


def _wake_at(state: State, view: View, choice: Integers) -> float | None:
    """When the first plan changes its place or starts."""
    values = view.values
    rows = np.arange(len(choice))
    change = np.where(choice >= 0, values.change[rows, np.maximum(choice, 0)], values.wait_change)
    soonest = float(change.min(initial=np.inf))
    if not np.isfinite(soonest):
        return None
    return state.now + max(soonest, float(view.periods[0]) / 4)


def _reasons(view: View, choice: Integers) -> dict[str, str]:
    values, table = view.values, view.table
    reasons: dict[str, str] = {}
    for row, name in enumerate(table.names):
        if choice[row] >= 0:
            continue
        if not np.isfinite(values.run[row]).any():
            reasons[name] = "waits: no configuration is admissible now (budget, caps or lost nodes)"
            continue
        gain = values.wait[row] - values.run[row].min()
        later = format_duration(float(values.wait_change[row]))
        if gain > 0:
            reasons[name] = (
                f"waits: other jobs save more with the nodes; starting now would save {format_money(gain)}"
            )
        else:
            reasons[name] = f"waits: starting in {later} costs {format_money(-gain)} less"
    return reasons


# ---------------------------------------------------------------- selection


def select(values: Values, table: OptionTable, places: Places, room: Room) -> Integers:
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
