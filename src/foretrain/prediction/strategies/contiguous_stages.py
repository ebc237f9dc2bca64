"""The best split of a line into contiguous stages, when a stage's time and need are separable in its bounds.

Stage s between bounds i < j takes from[i] + to[j] and fits if needed[s][i] <= room[s][j]. The least time of
the slowest stage follows from

    best[s][j] = min over i < j that fit of max(best[s-1][i], from[i] + to[j])          O(k n²), exact

It is computed in blocks that stay in the cache; stages slower than the best split on a coarse grid of bounds
are left out from the start, since no stage of the best split is.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_BLOCK = 64
"""Columns treated at a time: a block of 2,000 rows takes 1 MB."""

_GRID = 3
"""Coarse bounds per stage: enough to come near the best pace."""

_TIE = 1 + 1e-9
"""Paces nearer than this are the same."""

_NOT_BEFORE = np.tri(_BLOCK, dtype=bool)
"""In the square where rows and columns are the same bounds: where i >= j, no stage at all."""


@dataclass(frozen=True, eq=False)
class StageTerms:
    """Terms by bound (n + 1 of them), `needed` and `room` by stage and bound; `traffic` of a cut there."""

    time_from: Floats
    time_to: Floats
    traffic: Floats
    needed: Floats
    room: Floats

    def at(self, bounds: NDArray[np.int64]) -> StageTerms:
        """The same line with fewer bounds."""
        return StageTerms(
            self.time_from[bounds],
            self.time_to[bounds],
            self.traffic[bounds],
            self.needed[:, bounds],
            self.room[:, bounds],
        )

    def pace(self, bounds: tuple[int, ...]) -> float:
        """Time of the slowest stage; infinite for no split."""
        return float(max((self.time_from[i] + self.time_to[j] for i, j in pairwise(bounds)), default=np.inf))


def best_bounds(terms: StageTerms) -> tuple[int, ...]:
    """The split whose slowest stage is fastest, and of those one with least traffic; empty if none fits."""
    stages, count = terms.needed.shape
    limit = np.inf
    step = count // (_GRID * stages)
    if step > 1:
        grid = np.unique(np.append(np.arange(0, count, step), count - 1))
        coarse = terms.at(grid)
        limit = coarse.pace(_search(coarse, np.inf, least_traffic=False))
    fastest = _search(terms, limit, least_traffic=False)
    if not fastest:
        return ()
    return _search(terms, terms.pace(fastest) * _TIE, least_traffic=True)


def _search(terms: StageTerms, limit: float, *, least_traffic: bool) -> tuple[int, ...]:
    """Among splits whose stages take no longer than `limit` the fastest, or that with least traffic."""
    stages, count = terms.needed.shape
    best = np.full(count, np.inf)
    best[0] = 0.0
    choices = np.zeros((stages, count), dtype=np.int64)
    for stage in range(stages):
        following = np.full(count, np.inf)
        # A stage must leave a position to each stage after it, and the last one none.
        end = count - stages + stage + 1
        for start in range(count - 1 if stage == stages - 1 else stage + 1, end, _BLOCK):
            columns = slice(start, min(start + _BLOCK, end))
            first = _first_row(terms, stage, columns, limit)
            if first is None:
                continue
            cost = _costs(terms, stage, slice(first, columns.stop - 1), columns, limit, best, least_traffic)
            chosen = cost.argmin(axis=0)
            choices[stage, columns] = chosen + first
            following[columns] = cost[chosen, np.arange(cost.shape[1])]
        best = following
    if not np.isfinite(best[-1]):
        return ()
    found = [count - 1]
    for stage in reversed(range(stages)):
        found.append(int(choices[stage, found[-1]]))
    return tuple(reversed(found))


def _first_row(terms: StageTerms, stage: int, columns: slice, limit: float) -> int | None:
    """The first bound from which a stage to one of the columns can be within the limit and fit."""
    rows = slice(0, columns.stop - 1)
    useful = terms.time_from[rows] <= limit - terms.time_to[columns].min()
    useful &= terms.needed[stage, rows] <= terms.room[stage, columns].max()
    first = int(useful.argmax())
    return first if useful[first] else None


def _costs(
    terms: StageTerms,
    stage: int,
    rows: slice,
    columns: slice,
    limit: float,
    best: Floats,
    least_traffic: bool,
) -> Floats:
    """What the stages up to this one cost at best, if it runs from each row to each column."""
    times: Floats = terms.time_from[rows, None] + terms.time_to[None, columns]
    if least_traffic:
        cost = best[rows, None] + terms.traffic[None, columns]
        cost[times > limit] = np.inf
    else:
        cost = np.maximum(times, best[rows, None])
    needed, room = terms.needed[stage, rows], terms.room[stage, columns]
    if needed.max() > room.min():
        cost[needed[:, None] > room[None, :]] = np.inf
    skipped = max(0, rows.start - columns.start)
    tail = cost[max(0, columns.start - rows.start) :]
    tail[_NOT_BEFORE[skipped : skipped + len(tail), : tail.shape[1]]] = np.inf
    return cost
