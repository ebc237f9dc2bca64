"""Ways to run each job to its end: on one place; on two, one after the other; at once or later.

With work W (a share of the job), full times T₁ and T₂ on two places and D seconds to the deadline, a job that
changes from the first to the second after x seconds ends exactly at its deadline if

    x / T₁ + (D - x) / T₂ = W.

Other changes happen at the ends of periods. A plan costs its nodes (without idle GPUs) and its lateness; its use
of node time is counted by group and period.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from foretrain.scheduling.outlook.options import Floats, Integers, Places, Table

_ALMOST = 1e-9


@dataclass(frozen=True, slots=True)
class Detail:
    """How many plans are considered: starts later than now, starts with a change at the deadline, and ends of
    periods at which a job that starts now may change.
    """

    periods: int = 12
    deadline_starts: int = 4
    changes: int = 4


@dataclass(frozen=True, eq=False)
class Plans:
    """Plans of all jobs (rows; infinite cost where one is impossible).

    Plans of a column start on the same useful place, at `position` (-1: they wait).
    `node_seconds[job, plan, group·period]` counts the nodes used; `change` is when a plan first does something
    else than now (starts, or changes its place).
    """

    cost: Floats
    position: Integers
    change: Floats
    node_seconds: Floats
    periods: Floats


@dataclass(frozen=True, eq=False)
class _Block:
    """Plans of one shape: first place from `start` to `middle`, second place until `end`."""

    position: Integers
    first: Integers
    second: Integers
    start: Floats
    middle: Floats
    end: Floats
    valid: NDArray[np.bool_]
    now: bool


def plans_of(table: Table, places: Places, groups: int, periods: Floats, detail: Detail) -> Plans:
    """All plans; `periods` are the ends of the periods, of which the last never ends."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        blocks = [
            _single(table, table.available[:, None], now=True),
            *_later(table, periods, detail),
            _change_at_deadline(table, table.available[:, None], now=True),
            *(
                _change_at_deadline(table, _start(table, each), now=False)
                for each in _spread(periods[:-1], detail.deadline_starts)
            ),
            *(_change_at(table, float(each)) for each in _spread(periods[:-1], detail.changes)),
        ]
        parts = [_priced(block, table, places, groups, periods) for block in blocks]
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
    return values[np.unique(np.round(np.linspace(0, 1, count) ** 1.5 * (len(values) - 1)).astype(int))]


def _start(table: Table, at: float) -> Floats:
    return np.maximum(table.available, at)[:, None]


def _on(table: Table, values: Floats) -> Floats:
    """Values of the useful places of each job; padding is infinite."""
    chosen = np.take_along_axis(values, np.maximum(table.useful, 0), axis=1)
    return np.where(table.useful >= 0, chosen, math.inf)


def _single(table: Table, start: Floats, now: bool) -> _Block:
    seconds = _on(table, table.seconds)
    start = np.broadcast_to(start, seconds.shape)
    overhead = _on(table, table.overhead) if now else np.broadcast_to(table.switch[:, None], seconds.shape)
    end = start + overhead + table.work[:, None] * seconds
    position = np.arange(table.useful.shape[1])
    return _Block(position, table.useful, table.useful, start, end, end, np.isfinite(end), now)


def _later(table: Table, periods: Floats, detail: Detail) -> list[_Block]:
    """Wait, then run on one place: from the end of a period on, or just in time for the deadline."""
    blocks = [_single(table, _start(table, each), now=False) for each in periods[:-1]]
    latest = table.deadline[:, None] - table.switch[:, None] - table.work[:, None] * _on(table, table.seconds)
    earliest = np.maximum(table.available, periods[0])[:, None]
    just_in_time = _single(table, np.maximum(latest, earliest), now=False)
    valid = just_in_time.valid & (latest > earliest) & np.isfinite(latest)
    return [*blocks, replace(just_in_time, valid=valid)]


def _pairs(table: Table) -> tuple[Integers, Integers, Integers, Integers]:
    """Positions and places of every ordered pair of different useful places."""
    width = table.useful.shape[1]
    first, second = np.nonzero(~np.eye(width, dtype=bool))
    return first, second, table.useful[:, first], table.useful[:, second]


def _change_at_deadline(table: Table, start: Floats, now: bool) -> _Block:
    one, two, first, second = _pairs(table)
    seconds = _on(table, table.seconds)
    fast, slow = seconds[:, one], seconds[:, two]
    before = _on(table, table.overhead)[:, one] if now else table.switch[:, None]
    switch = table.switch[:, None]
    left = table.deadline[:, None] - start - before - switch
    x = (table.work[:, None] - left / slow) / (1 / fast - 1 / slow)
    valid = np.isfinite(x) & (x > _ALMOST) & (x < left - _ALMOST) & (first >= 0) & (second >= 0)
    start = np.broadcast_to(start, x.shape)
    end = np.broadcast_to(table.deadline[:, None], x.shape)
    return _Block(one, first, second, start, start + before + x, end, valid, now)


def _change_at(table: Table, at: float) -> _Block:
    """Start now and change the place at a given time."""
    one, two, first, second = _pairs(table)
    seconds = _on(table, table.seconds)
    start = np.broadcast_to(table.available[:, None], first.shape)
    before = _on(table, table.overhead)[:, one]
    middle = start + at
    left = table.work[:, None] - (at - before) / seconds[:, one]
    end = middle + table.switch[:, None] + left * seconds[:, two]
    valid = np.isfinite(end) & (left > _ALMOST) & (at > before) & (first >= 0) & (second >= 0)
    return _Block(one, first, second, start, middle, end, valid, now=True)


def _priced(block: _Block, table: Table, places: Places, groups: int, periods: Floats) -> Plans:
    valid = block.valid
    start, middle, end = (np.where(valid, each, 0.0) for each in (block.start, block.middle, block.end))
    usd = places.usd[block.first] * (middle - start) + places.usd[block.second] * (end - middle)
    late = np.maximum(0.0, end - table.deadline[:, None])
    cost = np.where(valid, usd + table.weight[:, None] * late, math.inf)
    nodes = np.zeros((*cost.shape, groups, len(periods)))
    for place, begin, finish in ((block.first, start, middle), (block.second, middle, end)):
        used = _overlaps(begin, finish, periods) * places.fraction[place][..., None]
        if groups == 1:
            nodes[..., 0, :] += used
        else:
            for group in range(groups):
                nodes[..., group, :] += used * (places.group[place] == group)[..., None]
    changes = block.second is not block.first
    change = (middle if changes else np.full(cost.shape, math.inf)) if block.now else start
    return Plans(
        cost=cost,
        position=block.position if block.now else np.full(len(block.position), -1, dtype=np.int64),
        change=change,
        node_seconds=nodes.reshape(*cost.shape, -1),
        periods=periods,
    )


def _overlaps(start: Floats, end: Floats, periods: Floats) -> Floats:
    """Seconds of each interval in each period: differences of the time covered up to each end."""
    covered = np.minimum(end[..., None], periods) - start[..., None]
    np.maximum(covered, 0.0, out=covered)
    covered[..., 1:] -= covered[..., :-1].copy()
    return covered
