"""A mixed-integer program for the first step: which jobs run where, and how many nodes of each type are
on.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from foretrain.scheduling.decision import Decision, NodeLoad
from foretrain.scheduling.loop import Policy
from foretrain.scheduling.options import Floats, Integers, Places
from foretrain.scheduling.outlook import Settings, View, view_of
from foretrain.scheduling.packing import Room, pack, room_of
from foretrain.scheduling.policies.price import decision_of, select
from foretrain.scheduling.state import State


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
        view = view_of(state, self.settings)
        room = room_of(state, view.places)
        start = select(view.values, view.table, view.places, room)
        if len(view.table.names) > self.most_jobs:
            note = f"milp: {len(view.table.names)} jobs, more than {self.most_jobs}: selection by prices"
            return decision_of(state, view, start, (note,))
        selection, note = solve(view, room, self.most_nodes)
        if selection is None:
            return decision_of(state, view, start, (f"milp: {note}: selection by prices",))
        if (selection < 0).all() and (start >= 0).any():
            return decision_of(
                state, view, start, ("milp: no node on is cheaper for now only: selection by prices",)
            )
        if first_step_usd(state, view, selection) <= first_step_usd(state, view, start) + 1e-9:
            return decision_of(state, view, selection, (f"milp: {note}",))
        return decision_of(state, view, start, (f"milp: {note}, not better than the selection by prices",))


def first_step_usd(state: State, view: View, choice: Integers) -> float:
    """The objective: cost of all jobs after the first period, and of the nodes that are on during it."""
    packing = pack(state, view.places, chosen_places(view, choice))
    left_out = set(packing.left_out)
    rest, wait = _rest(view), _wait(view)
    jobs = sum(
        wait[row] if choice[row] < 0 or name in left_out else rest[row, choice[row]]
        for row, name in enumerate(view.table.names)
    )
    return float(jobs) + view.values.until * sum(_usd(state, load) for load in packing.loads)


def chosen_places(view: View, choice: Integers) -> list[tuple[str, int]]:
    """Jobs that run, with their places."""
    return [
        (name, int(view.table.useful[row, choice[row]]))
        for row, name in enumerate(view.table.names)
        if choice[row] >= 0
    ]


def _usd(state: State, load: NodeLoad) -> float:
    return state.fleet.types[load.node_type].usd_per_second


def _rest(view: View) -> Floats:
    """Cost of jobs without the nodes of the first period; node time of it that a job leaves to others is
    worth its price.
    """
    index = np.maximum(view.table.useful, 0)
    places, values = view.places, view.values
    price = view.prices[:: len(view.periods)][places.group[index]]
    unused = np.maximum(0.0, places.fraction[index] - values.nodes) * values.until
    return values.run - places.usd[index] * values.until - price * unused


def _wait(view: View) -> Floats:
    """Cost of jobs that wait; where waiting has no plan (a job that may not be stopped), it costs nothing
    more.
    """
    return np.where(np.isfinite(view.values.wait), view.values.wait, 0.0)


def solve(view: View, room: Room, most_nodes: int) -> tuple[Integers | None, str]:
    """The solver's selection, and a remark on its quality; None if it found none."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    table, places = view.table, view.places
    rest, wait = _rest(view), _wait(view)
    movable = np.isfinite(rest) & ~table.fixed[:, None]
    rows, columns = np.nonzero(movable)
    if not len(rows):
        return np.where(table.fixed, 0, -1), "nothing to decide"
    nodes = [
        (kind, size) for kind in range(len(places.kinds)) for size in range(len(places.kinds[kind].types))
    ]
    usd = [places.kinds[kind].usd_per_second[size] * view.values.until for kind, size in nodes]
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
