"""What the charts of a schedule show, computed from its outcome: who ran where, and the cluster over time."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from foretrain.scheduling.accounting import Occupancy, Outcome

_POINTS = 600
"""Points of a line over time."""
_MOST_BARS = 3_000
"""Bars of a Gantt chart beyond which it shows the share of GPUs in use instead."""
_MOST_LANES = 120
"""With more nodes than this, several share a lane."""
_COLUMNS = 240
"""Cells of a coarse chart, which shows shares of use instead of single jobs."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A job on one node without interruption: GPUs `first_gpu` to `first_gpu + gpus` of it."""

    lane: int
    job: str
    node_type: str
    start_seconds: float
    end_seconds: float
    first_gpu: int
    gpus: int
    is_late: bool


@dataclass(frozen=True, slots=True)
class Lane:
    """A node, or several together: its name, and the most GPUs it had."""

    name: str
    gpus: int


@dataclass(frozen=True)
class Gantt:
    """Who ran where. Too many bars to see are replaced by `shares`: GPUs in use by lane and column of time.

    `on` are the times at which each lane's node was on, with the GPUs it had then.
    """

    start_seconds: float
    end_seconds: float
    lanes: tuple[Lane, ...]
    bars: tuple[Bar, ...]
    on: tuple[tuple[tuple[float, float, int], ...], ...]
    shares: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True)
class OverTime:
    """The cluster over time, each at the same moments; the values hold from a moment on.

    `paid_gpus` are those of nodes that are on. `spent_usd` counts nodes, `late_usd` the lateness of jobs, at
    their completion.
    """

    seconds: tuple[float, ...]
    used_gpus: tuple[float, ...]
    paid_gpus: tuple[float, ...]
    waiting_jobs: tuple[float, ...]
    spent_usd: tuple[float, ...]
    late_usd: tuple[float, ...]


def gantt(outcome: Outcome) -> Gantt:
    """The Gantt chart of an outcome with its history."""
    rows = outcome.history
    late = {each.job for each in outcome.jobs if each.late_seconds > 0}
    by_node: dict[int, list[Occupancy]] = defaultdict(list)
    for row in rows:
        by_node[row.node].append(row)
    start = min((each.submit_seconds for each in outcome.jobs), default=0.0)
    end = max((row.end_seconds for row in rows), default=start)
    nodes = sorted(by_node)
    bars = [bar for lane, node in enumerate(nodes) for bar in _bars(lane, by_node[node], late)]
    lanes = tuple(_lane(node, by_node[node]) for node in nodes)
    on = tuple(_on(by_node[node]) for node in nodes)
    if len(bars) <= _MOST_BARS and len(lanes) <= _MOST_LANES:
        return Gantt(start, end, lanes, tuple(bars), on)
    return _coarse(start, end, nodes, by_node)


def over_time(outcome: Outcome, points: int = _POINTS) -> OverTime:
    """The cluster over time, of an outcome with its history."""
    changes: dict[float, list[float]] = defaultdict(lambda: [0.0] * 4)
    slopes: dict[float, float] = defaultdict(float)
    for row in outcome.history:
        used = float(sum(gpus for _, gpus in row.shares))
        begin, end = changes[row.start_seconds], changes[row.end_seconds]
        for column, amount in ((0, used), (1, float(row.gpus))):
            begin[column] += amount
            end[column] -= amount
        rate = row.usd / (row.end_seconds - row.start_seconds)
        slopes[row.start_seconds] += rate
        slopes[row.end_seconds] -= rate
    for seconds, amount in _waiting(outcome):
        changes[seconds][2] += amount
    for job in outcome.jobs:
        if job.finish_seconds is not None:
            changes[job.finish_seconds][3] += job.tardiness_usd
    return _sampled(changes, slopes, points)


def _waiting(outcome: Outcome) -> Iterable[tuple[float, float]]:
    """Changes of the number of jobs that wait: submitted, unfinished and not running."""
    for job in outcome.jobs:
        if job.start_seconds is not None or job.finish_seconds is not None:
            yield job.submit_seconds, 1
    running: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in outcome.history:
        for name, _ in row.shares:
            running[name].append((row.start_seconds, row.end_seconds))
    ends = {job.job: job.finish_seconds for job in outcome.jobs}
    for name, spans in running.items():
        for begin, end in _joined(spans):
            yield begin, -1
            if ends.get(name) is None or end < (ends[name] or 0.0):
                yield end, 1


def _sampled(
    changes: Mapping[float, Sequence[float]], slopes: Mapping[float, float], points: int
) -> OverTime:
    """Running sums, at all moments or at `points` of them."""
    moments = sorted({*changes, *slopes})
    rows: list[tuple[float, float, float, float, float]] = []
    levels, spent, rate, last = [0.0] * 4, 0.0, 0.0, moments[0] if moments else 0.0
    for moment in moments:
        spent += rate * (moment - last)
        rate += slopes.get(moment, 0.0)
        last = moment
        levels = [a + b for a, b in zip(levels, changes.get(moment, (0.0,) * 4), strict=True)]
        rows.append((*levels[:3], spent, levels[3]))  # type: ignore[arg-type]
    kept = list(range(len(moments)))
    if len(moments) > points:
        span = moments[-1] - moments[0]
        wanted = (moments[0] + span * number / (points - 1) for number in range(points))
        kept = sorted({max(0, bisect_right(moments, moment) - 1) for moment in wanted})
    columns = list(zip(*(rows[index] for index in kept), strict=True)) or [()] * 5
    return OverTime(tuple(moments[index] for index in kept), *columns)


def _lane(node: int, rows: Sequence[Occupancy]) -> Lane:
    types = sorted({row.node_type for row in rows})
    kind = f" · {types[0]}" if len(types) == 1 else ""
    return Lane(f"node {node}{kind}", max(row.gpus for row in rows))


def _bars(lane: int, rows: Sequence[Occupancy], late: set[str]) -> list[Bar]:
    """Jobs keep their GPUs while they go on; spans that follow each other are one bar."""
    bars: list[Bar] = []
    places: dict[str, int] = {}
    open_bars: dict[str, Bar] = {}
    for row in sorted(rows, key=lambda each: each.start_seconds):
        shares = dict(row.shares)
        places = _places({name: at for name, at in places.items() if name in shares}, shares, row.gpus)
        for name, gpus in row.shares:
            before = open_bars.pop(name, None)
            bar = Bar(
                lane, name, row.node_type, row.start_seconds, row.end_seconds, places[name], gpus,
                is_late=name in late,
            )  # fmt: skip
            if before is not None and _goes_on(before, bar):
                bar = replace(bar, start_seconds=before.start_seconds)
            elif before is not None:
                bars.append(before)
            open_bars[name] = bar
        bars += [open_bars.pop(name) for name in list(open_bars) if name not in shares]
    return [*bars, *open_bars.values()]


def _goes_on(before: Bar, bar: Bar) -> bool:
    same = (before.first_gpu, before.gpus, before.node_type) == (bar.first_gpu, bar.gpus, bar.node_type)
    return same and abs(before.end_seconds - bar.start_seconds) < 1e-6


def _places(kept: Mapping[str, int], shares: Mapping[str, int], gpus: int) -> dict[str, int]:
    """The first GPU of each job; where the free ones are scattered, all move together."""
    places = dict(kept)
    taken = {at + number for name, at in places.items() for number in range(shares[name])}
    for name, count in shares.items():
        if name in places:
            continue
        fitting = (
            at for at in range(gpus - count + 1) if not any(at + number in taken for number in range(count))
        )
        at = next(fitting, None)
        if at is None:
            return _from_the_first(shares)
        places[name] = at
        taken.update(range(at, at + count))
    if any(at + shares[name] > gpus for name, at in places.items()):
        return _from_the_first(shares)
    return places


def _from_the_first(shares: Mapping[str, int]) -> dict[str, int]:
    places, at = {}, 0
    for name, count in shares.items():
        places[name] = at
        at += count
    return places


def _joined(spans: Iterable[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Spans of time that touch, as one."""
    joined: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1] + 1e-6:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return tuple(joined)


def _on(rows: Sequence[Occupancy]) -> tuple[tuple[float, float, int], ...]:
    """When a node was on, with its GPUs."""
    by_gpus: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        by_gpus[row.gpus].append((row.start_seconds, row.end_seconds))
    return tuple(sorted((*span, gpus) for gpus, spans in by_gpus.items() for span in _joined(spans)))


def _coarse(
    start: float, end: float, nodes: Sequence[int], by_node: Mapping[int, Sequence[Occupancy]]
) -> Gantt:
    """Shares of GPUs in use, for lanes of several nodes where there are many."""
    per_lane = -(-len(nodes) // _MOST_LANES)
    groups = [nodes[at : at + per_lane] for at in range(0, len(nodes), per_lane)]
    width = (end - start) / _COLUMNS or 1.0
    lanes, shares = [], []
    for group in groups:
        rows = [row for node in group for row in by_node[node]]
        gpus = sum(max(row.gpus for row in by_node[node]) for node in group)
        used = [0.0] * _COLUMNS
        for row in rows:
            count = sum(each for _, each in row.shares)
            first, last = (
                min(_COLUMNS - 1, max(0, int((moment - start) / width)))
                for moment in (row.start_seconds, row.end_seconds)
            )
            for column in range(first, last + 1):
                begin, finish = start + column * width, start + (column + 1) * width
                overlap = min(row.end_seconds, finish) - max(row.start_seconds, begin)
                used[column] += max(0.0, overlap) * count
        name = _lane(group[0], by_node[group[0]]).name if len(group) == 1 else f"nodes {group[0]}–{group[-1]}"
        lanes.append(Lane(name, gpus))
        shares.append(tuple(min(1.0, each / (gpus * width)) for each in used))
    return Gantt(start, end, tuple(lanes), (), ((),) * len(lanes), tuple(shares))
