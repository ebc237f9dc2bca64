"""Prices of node time: every job follows its cheapest plan, at prices at which all plans fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from foretrain.scheduling.decision import Decision
from foretrain.scheduling.outlook.options import Integers, Kind
from foretrain.scheduling.outlook.packing import packed
from foretrain.scheduling.outlook.selection import room_of, selected
from foretrain.scheduling.outlook.view import Settings, View, view_of
from foretrain.scheduling.policy import Policy
from foretrain.scheduling.state import State
from foretrain.units import format_duration, format_money


@dataclass(frozen=True)
class Price(Policy):
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
        choice = selected(view.values, view.table, view.places, room_of(state, view.places))
        return decision_of(state, view, choice)


def decision_of(state: State, view: View, choice: Integers, notes: tuple[str, ...] = ()) -> Decision:
    """Nodes for a selection, the next time to look again, and why jobs wait."""
    table, places, values = view.table, view.places, view.values
    rows = {name: row for row, name in enumerate(table.names)}
    chosen = [(name, int(table.useful[row, choice[row]])) for name, row in rows.items() if choice[row] >= 0]

    def wider(name: str, kind: Kind, gpus: int, spare: int) -> Sequence[tuple[float, int]]:
        row = rows[name]
        now = values.run[row, choice[row]]
        paid = places.usd[table.useful[row, choice[row]]]
        moves = []
        for position, place in enumerate(table.useful[row]):
            more = int(places.gpus[place])
            if place < 0 or places.kinds[places.kind[place]] is not kind or places.nodes[place] > 1:
                continue
            if gpus < more <= gpus + spare:
                gain = now - values.run[row, position] + (places.usd[place] - paid) * values.until
                if gain > 1e-9:
                    moves.append((float(gain), more))
        return moves

    packing = packed(state, places, chosen, wider)
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
