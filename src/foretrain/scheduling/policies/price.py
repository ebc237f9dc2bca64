"""Policies that look ahead: prices of node time, and a mixed-integer program for the first step.

Both price the node time of coming periods (`outlook`) so that the cheapest plans of all jobs fit into the
nodes, and select which jobs run now by what their first steps save. `price` does so by prices alone: every
job takes the place with the least cost of its rest plus ν · nodes used, or waits. ν, one for each group of
nodes, is the lowest price at which the choices fit; then jobs that gain most take what room is left.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretrain.scheduling.loop import Decision, Policy
from foretrain.scheduling.options import Floats, Integers, Places
from foretrain.scheduling.outlook import Outlook, Settings, look_ahead
from foretrain.scheduling.packing import Room, pack, room_of
from foretrain.scheduling.problem import Configuration
from foretrain.scheduling.state import State
from foretrain.units import format_duration, format_money

# 24 halvings leave 1e-7 of a price; rounds and tries bound the time of a selection among thousands of jobs.
_HALVINGS = 24
_ROUNDS = 4
"""A round may free nodes that the next one uses; it ends sooner where no job moves."""
_MOST_TRIES = 300
"""Moves tried in a round, best first: thousands of jobs have more moves than a decision has time for."""


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
        outlook = look_ahead(state, self.settings)
        choice = select(outlook, room_of(state, outlook.places))
        return decision_of(state, outlook, choice)


def decision_of(state: State, outlook: Outlook, choice: Integers, notes: tuple[str, ...] = ()) -> Decision:
    """Nodes for a selection, the next time to look again, and why jobs wait."""
    table, places = outlook.table, outlook.places
    rows = {name: row for row, name in enumerate(table.names)}

    def gains(name: str, node_type: str, gpus: int, spare: int) -> Iterator[tuple[float, int]]:
        """USD that wider places of its kind of node save a job; the further GPUs are paid anyway."""
        row = rows[name]
        run, here = outlook.run[row], table.useful[row, choice[row]]
        for position, place in enumerate(table.useful[row]):
            wider = Configuration(node_type, int(places.gpus[place]))
            if place < 0 or places.group[place] != places.group[here] or wider not in places.types_of[place]:
                continue
            if gpus < wider.gpus <= gpus + spare and wider in state.jobs[name].job.seconds:
                paid = (places.usd[place] - places.usd[here]) * outlook.until
                gain = run[choice[row]] - run[position] + paid
                if gain > 1e-9:
                    yield float(gain), wider.gpus

    packing = pack(state, places, chosen_places(outlook, choice), gains)
    wake_at = _wake_at(state, outlook, choice)
    return Decision(packing.loads, wake_at, notes, _reasons(outlook, choice))


def _wake_at(state: State, outlook: Outlook, choice: Integers) -> float | None:
    """When the first plan changes its place or starts."""
    rows = np.arange(len(choice))
    change = np.where(choice >= 0, outlook.change[rows, np.maximum(choice, 0)], outlook.wait_change)
    soonest = float(change.min(initial=np.inf))
    if not np.isfinite(soonest):
        return None
    return state.now + max(soonest, float(outlook.periods[0]) / 4)


def _reasons(outlook: Outlook, choice: Integers) -> dict[str, str]:
    reasons: dict[str, str] = {}
    for row, name in enumerate(outlook.table.names):
        if choice[row] >= 0:
            continue
        if not np.isfinite(outlook.run[row]).any():
            reasons[name] = "waits: no configuration is admissible now (budget, caps or lost nodes)"
            continue
        gain = outlook.wait[row] - outlook.run[row].min()
        later = format_duration(float(outlook.wait_change[row]))
        if gain > 0:
            reasons[name] = (
                f"waits: other jobs save more with the nodes; starting now would save {format_money(gain)}"
            )
        else:
            reasons[name] = f"waits: starting in {later} costs {format_money(-gain)} less"
    return reasons


# ---------------------------------------------------------------- selection


def select(outlook: Outlook, room: Room) -> Integers:
    """The position of each active job's place, -1 if it waits."""
    useful, fixed, fraction = outlook.table.useful, outlook.table.fixed, outlook.nodes
    group = outlook.places.group[np.maximum(useful, 0)]
    costs = np.concatenate([outlook.run, outlook.wait[:, None]], axis=1)
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
        return np.bincount(useful[moving, choice[moving]], minlength=len(outlook.places))

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


# ---------------------------------------------------------------- mixed-integer program


@dataclass(frozen=True)
class Milp(Policy):
    """At every event, with x[j,p] = 1 if job j runs on place p (GPUs of a kind), and n[t] nodes of type t,

        minimise   Σ x[j,p] · rest[j,p] + Σ_j (1 - Σ_p x[j,p]) · wait[j] + Σ n[t] · price[t] · δ
        such that  each job runs on one place at most,
                   GPUs of jobs wider than w <= GPUs of nodes larger than w, for each kind and size w,
                   Σ n[t] <= nodes of the group.

    `rest` is the cost of a job's cheapest plan after the first δ seconds, `wait` that of its cheapest plan if
    it is postponed by δ, lateness included, both at the prices of node time over the horizon. Nodes have no
    index: jobs whose widths are node sizes can always be packed. GPUs that stay idle beside a job cost it
    only in the first period, so a lone job would be postponed again and again: with no node on, `price`
    selects. The selection of `price` is the start: it is kept if the solver finds nothing better within
    `most_nodes` nodes of its search tree, a limit that, unlike one of time, gives the same decision for the
    same state.
    """

    name = "milp"
    summary = "Mixed-integer program at every event, over a horizon; for small clusters."
    forecast_by = "price"

    settings: Settings = field(default_factory=Settings)
    most_nodes: int = 200
    most_jobs: int = 400

    def decide(self, state: State) -> Decision:
        """The better of the solver's selection and that of `price`."""
        if not state.jobs:
            return Decision()
        outlook = look_ahead(state, self.settings)
        room = room_of(state, outlook.places)
        start = select(outlook, room)
        if len(outlook.table.names) > self.most_jobs:
            note = f"milp: {len(outlook.table.names)} jobs, more than {self.most_jobs}: selection by prices"
            return decision_of(state, outlook, start, (note,))
        selection, note = solve(outlook, room, self.most_nodes)
        if selection is None:
            return decision_of(state, outlook, start, (f"milp: {note}: selection by prices",))
        if (selection < 0).all() and (start >= 0).any():
            return decision_of(
                state, outlook, start, ("milp: no node on is cheaper for now only: selection by prices",)
            )
        if first_step_usd(state, outlook, selection) <= first_step_usd(state, outlook, start) + 1e-9:
            return decision_of(state, outlook, selection, (f"milp: {note}",))
        return decision_of(state, outlook, start, (f"milp: {note}, not better than the selection by prices",))


def first_step_usd(state: State, outlook: Outlook, choice: Integers) -> float:
    """The objective: cost of all jobs after the first period, and of the nodes that are on during it."""
    packing = pack(state, outlook.places, chosen_places(outlook, choice))
    left_out = set(packing.left_out)
    rest, wait = _rest(outlook), _wait(outlook)
    jobs = sum(
        wait[row] if choice[row] < 0 or name in left_out else rest[row, choice[row]]
        for row, name in enumerate(outlook.table.names)
    )
    return float(jobs) + outlook.until * packing.usd_per_second


def chosen_places(outlook: Outlook, choice: Integers) -> list[tuple[str, int]]:
    """Jobs that run, with their places."""
    return [
        (name, int(outlook.table.useful[row, choice[row]]))
        for row, name in enumerate(outlook.table.names)
        if choice[row] >= 0
    ]


def _rest(outlook: Outlook) -> Floats:
    """Cost of jobs without the nodes of the first period; node time of it that a job leaves to others is
    worth its price.
    """
    index = np.maximum(outlook.table.useful, 0)
    places = outlook.places
    price = outlook.prices[:: len(outlook.periods)][places.group[index]]
    unused = np.maximum(0.0, places.fraction[index] - outlook.nodes) * outlook.until
    return outlook.run - places.usd[index] * outlook.until - price * unused


def _wait(outlook: Outlook) -> Floats:
    """Cost of jobs that wait; where waiting has no plan (a job that may not be stopped), it costs nothing
    more.
    """
    return np.where(np.isfinite(outlook.wait), outlook.wait, 0.0)


def solve(outlook: Outlook, room: Room, most_nodes: int) -> tuple[Integers | None, str]:
    """The solver's selection, and a remark on its quality; None if it found none."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    table, places = outlook.table, outlook.places
    rest, wait = _rest(outlook), _wait(outlook)
    movable = np.isfinite(rest) & ~table.fixed[:, None]
    rows, columns = np.nonzero(movable)
    if not len(rows):
        return np.where(table.fixed, 0, -1), "nothing to decide"
    nodes = [
        (kind, size) for kind in range(len(places.kinds)) for size in range(len(places.kinds[kind].types))
    ]
    usd = [places.kinds[kind].usd_per_second[size] * outlook.until for kind, size in nodes]
    cost = np.concatenate([rest[rows, columns] - wait[rows], usd])
    matrix, upper = _constraints(rows, table.useful[rows, columns], nodes, places, room, len(table.names))
    limits = np.concatenate(
        [np.ones(len(rows)), [room.available[places.kinds[kind].group] for kind, _ in nodes]]
    )
    with without_output():
        result: Any = milp(
            cost,
            integrality=np.ones(len(cost)),
            bounds=Bounds(np.zeros(len(cost)), np.maximum(limits, 0)),
            constraints=LinearConstraint(matrix, -np.inf, upper),
            options={"node_limit": most_nodes, "mip_rel_gap": 1e-4},
        )
    if result.x is None:
        return None, f"no solution within {most_nodes} nodes of the search tree"
    choice = np.where(table.fixed, 0, -1)
    taken = result.x[: len(rows)] > 0.5
    choice[rows[taken]] = columns[taken]
    gap = 0.0 if result.mip_gap is None else float(result.mip_gap)
    return choice, f"gap {gap:.2%}" + (
        "" if result.status == 0 else f" at the limit of {most_nodes} nodes of the search tree"
    )


def _constraints(
    rows: Integers,
    chosen: Integers,
    nodes: list[tuple[int, int]],
    places: Places,
    room: Room,
    jobs: int,
) -> tuple[Any, Floats]:
    """One place for each job; GPUs by kind and width; nodes by group."""
    from scipy.sparse import coo_array

    entries: list[tuple[Integers | list[int], Integers | list[int], Floats | list[float]]] = []
    upper = [1.0] * jobs
    entries.append((rows, np.arange(len(rows)), np.ones(len(rows))))
    single = places.nodes[chosen] == 1
    for kind, of_kind in enumerate(places.kinds):
        here = np.flatnonzero(single & (places.kind[chosen] == kind))
        for width in sorted({0, *of_kind.sizes[:-1]}):
            wide = here[places.gpus[chosen[here]] > width]
            row = len(upper)
            upper.append(0.0)
            taken = _room_taken(places.gpus[chosen[wide]], of_kind.sizes)
            entries.append((np.full(len(wide), row), wide, taken))
            for column, (other, size) in enumerate(nodes, start=len(rows)):
                if other == kind and of_kind.sizes[size] > width:
                    entries.append(([row], [column], [-float(of_kind.sizes[size])]))
    for group, available in enumerate(room.available):
        row = len(upper)
        upper.append(float(available))
        spanning = np.flatnonzero(~single & (places.group[chosen] == group))
        entries.append((np.full(len(spanning), row), spanning, places.nodes[chosen[spanning]].astype(float)))
        for column, (kind, _) in enumerate(nodes, start=len(rows)):
            if places.kinds[kind].group == group:
                entries.append(([row], [column], [1.0]))
    values = np.concatenate([np.asarray(each[2], dtype=float) for each in entries])
    index = [np.concatenate([np.asarray(each[axis], dtype=np.int64) for each in entries]) for axis in (0, 1)]
    shape = (len(upper), len(rows) + len(nodes))
    return coo_array((values, (index[0], index[1])), shape=shape).tocsr(), np.array(upper)


def _room_taken(gpus: Integers, sizes: tuple[int, ...]) -> Floats:
    """GPUs a job keeps from others: up to the next node size, where small nodes exist."""
    if sizes[0] > 1:
        return gpus.astype(float)
    return np.array([min(size for size in sizes if size >= each) for each in gpus.tolist()], dtype=float)


_STANDARD_OUTPUT = 1
"""The file descriptor: HiGHS writes there from C, past `sys.stdout`."""


@contextmanager
def without_output() -> Iterator[None]:
    """Send what is written to the file descriptor of standard output to nowhere.

    HiGHS prints a line when it repairs a solution, whatever its options say. C buffers its output, so the
    buffer is emptied before the descriptor is given back. A process without standard output is left as it is.
    """
    sys.stdout.flush()
    try:
        kept = os.dup(_STANDARD_OUTPUT)
    except OSError:
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    _flush()
    os.dup2(nowhere, _STANDARD_OUTPUT)
    try:
        yield
    finally:
        _flush()
        os.dup2(kept, _STANDARD_OUTPUT)
        os.close(kept)
        os.close(nowhere)


def _flush() -> None:
    """Empty the buffers of the C library, where it can be loaded without a name."""
    if os.name == "posix":
        ctypes.CDLL(None).fflush(None)
