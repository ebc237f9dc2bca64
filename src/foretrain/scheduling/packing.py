"""Which jobs share a node: items of some GPUs each, put into nodes of one kind, and the type each node takes.

Jobs are put into nodes of the largest size, largest first; nodes that are left are used to split those whose
jobs would be cheaper on smaller nodes; every node takes its cheapest type; GPUs that stay idle are given to a
job of the node, since they are paid anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from foretrain.scheduling.decision import NodeLoad
from foretrain.scheduling.options import Integers, NodeKind, Places
from foretrain.scheduling.problem import Configuration
from foretrain.scheduling.state import State

Widths = Callable[[str, NodeKind, int, int], Sequence[tuple[float, int]]]
"""(job, kind, GPUs it has, GPUs to spare) -> (gain, GPUs) of every wider place that is better."""


@lru_cache(maxsize=200_000)
def nodes_needed(counts: tuple[int, ...], most_gpus: int, free: tuple[int, ...] = ()) -> int:
    """Nodes for `counts[g - 1]` jobs of g GPUs each, beside the free GPUs of nodes that are on anyway."""
    left = list(counts)
    for room in free:
        _fill(left, room)
    nodes = 0
    while any(left):
        _fill(left, most_gpus)
        nodes += 1
    return nodes


def _fill(left: list[int], room: int) -> None:
    """Take the largest jobs that fit until none does."""
    for gpus in range(min(room, len(left)), 0, -1):
        while left[gpus - 1] and gpus <= room:
            left[gpus - 1] -= 1
            room -= gpus


@dataclass
class _Node:
    """A node being filled: jobs with their GPUs, the types it may still take (positions in its kind)."""

    kind: NodeKind
    types: frozenset[int]
    jobs: list[tuple[str, int]] = field(default_factory=list)
    is_fixed: bool = False

    @property
    def used(self) -> int:
        return sum(gpus for _, gpus in self.jobs)

    def types_with(self, gpus: int, types: frozenset[int]) -> frozenset[int]:
        """Types that remain if a job of `gpus` GPUs joins that may run on `types`."""
        needed = self.used + gpus
        return frozenset(each for each in self.types & types if self.kind.sizes[each] >= needed)

    def cheapest(self) -> int:
        prices, sizes = self.kind.usd_per_second, self.kind.sizes
        return min(self.types, key=lambda each: (prices[each], sizes[each]))

    @property
    def usd(self) -> float:
        return self.kind.usd_per_second[self.cheapest()]


@dataclass(frozen=True)
class Packing:
    """The loads of all nodes, and jobs that found no room."""

    loads: tuple[NodeLoad, ...]
    left_out: tuple[str, ...]


def pack(
    state: State, places: Places, chosen: Iterable[tuple[str, int]], wider: Widths | None = None
) -> Packing:
    """Nodes for jobs and their places; jobs that may not be moved stay on their nodes."""
    nodes, fixed_loads = _fixed_nodes(state, places)
    fixed = set(state.fixed)
    room = [state.available(group) for group in range(len(state.fleet.groups))]
    for node in nodes:
        room[node.kind.group] -= 1
    for load in fixed_loads:
        room[load.group] -= 1
    loads = list(fixed_loads)
    left_out: list[str] = []
    items = [(name, place) for name, place in chosen if name not in fixed]
    for name, place in items:
        if places.nodes[place] > 1:
            loads.extend(_spanning(name, place, places, room, left_out))
    single = [(int(places.gpus[place]), name, place) for name, place in items if places.nodes[place] == 1]
    single.sort(key=lambda each: -each[0])
    open_nodes = _Open(nodes)
    for gpus, name, place in single:
        kind = places.kinds[int(places.kind[place])]
        types = _types_of(state, name, kind, gpus)
        if open_nodes.put(kind, name, gpus, types):
            continue
        if room[kind.group] < 1 or not types:
            left_out.append(name)
            continue
        room[kind.group] -= 1
        nodes.append(_Node(kind, types, [(name, gpus)]))
        open_nodes.add(nodes[-1])
    _split(state, nodes, room)
    if wider is not None:
        _widen(state, nodes, wider)
    loads.extend(_load(node) for node in nodes)
    return Packing(tuple(loads), tuple(left_out))


def _load(node: _Node) -> NodeLoad:
    return NodeLoad(node.kind.group, node.kind.types[node.cheapest()], tuple(node.jobs))


def _fixed_nodes(state: State, places: Places) -> tuple[list[_Node], list[NodeLoad]]:
    """Nodes of jobs that may not be moved; those of a job on several nodes are complete."""
    nodes: dict[int, _Node] = {}
    loads: list[NodeLoad] = []
    for name, running in state.fixed.items():
        group = state.fleet.group_of(running.nodes[0])
        node_type, gpus = running.configuration.node_type, running.configuration.gpus
        if len(running.nodes) > 1:
            loads.extend(NodeLoad(group, node_type, ((name, gpus),)) for _ in running.nodes)
            continue
        kind = next(each for each in places.kinds if each.group == group and node_type in each.types)
        node = nodes.setdefault(
            running.nodes[0], _Node(kind, frozenset({kind.types.index(node_type)}), is_fixed=True)
        )
        node.jobs.append((name, gpus))
    return list(nodes.values()), loads


def _spanning(name: str, place: int, places: Places, room: list[int], left_out: list[str]) -> list[NodeLoad]:
    group, count = int(places.group[place]), int(places.nodes[place])
    if room[group] < count:
        left_out.append(name)
        return []
    room[group] -= count
    configuration = places.types_of[place][0]
    return [NodeLoad(group, configuration.node_type, ((name, configuration.gpus),)) for _ in range(count)]


def _types_of(state: State, name: str, kind: NodeKind, gpus: int) -> frozenset[int]:
    """Types of a kind on which a job has a time with `gpus` GPUs."""
    seconds = state.jobs[name].job.seconds
    return frozenset(
        index
        for index, each in enumerate(kind.types)
        if kind.sizes[index] >= gpus and Configuration(each, gpus) in seconds
    )


class _Open:
    """Nodes by kind and GPUs to spare, so that the fullest one that takes a job is found at once."""

    def __init__(self, nodes: Iterable[_Node]) -> None:
        self._nodes: dict[NodeKind, list[list[_Node]]] = {}
        for node in nodes:
            self.add(node)

    def add(self, node: _Node) -> None:
        """Note the GPUs a node has to spare."""
        by_spare = self._nodes.setdefault(node.kind, [[] for _ in range(node.kind.most_gpus + 1)])
        by_spare[max(node.kind.sizes[each] for each in node.types) - node.used].append(node)

    def put(self, kind: NodeKind, name: str, gpus: int, types: frozenset[int]) -> bool:
        """Put a job on the fullest node that takes it; False if there is none."""
        for nodes in self._nodes.get(kind, ())[gpus:]:
            for position in range(len(nodes) - 1, -1, -1):
                remaining = nodes[position].types_with(gpus, types)
                if remaining:
                    node = nodes.pop(position)
                    node.types = remaining
                    node.jobs.append((name, gpus))
                    self.add(node)
                    return True
        return False


def _split(state: State, nodes: list[_Node], room: list[int]) -> None:
    """Use nodes that are left to separate jobs that are cheaper apart."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop(0)
        if room[node.kind.group] < 1 or node.is_fixed or len(node.jobs) < 2:
            continue
        halves = _cheaper_halves(state, node)
        if halves is None:
            continue
        room[node.kind.group] -= 1
        node.jobs, node.types = halves[0].jobs, halves[0].types
        nodes.append(halves[1])
        waiting.extend((node, halves[1]))


def _cheaper_halves(state: State, node: _Node) -> tuple[_Node, _Node] | None:
    best: tuple[float, tuple[_Node, _Node]] | None = None
    for size in node.kind.sizes:
        if size >= node.used:
            continue
        inside: list[tuple[str, int]] = []
        outside: list[tuple[str, int]] = []
        for job in sorted(node.jobs, key=lambda each: -each[1]):
            fits = sum(gpus for _, gpus in inside) + job[1] <= size
            (inside if fits else outside).append(job)
        if not inside or not outside:
            continue
        halves = _node_of(state, node.kind, inside), _node_of(state, node.kind, outside)
        if not (halves[0].types and halves[1].types):
            continue
        saving = node.usd - halves[0].usd - halves[1].usd
        if saving > 1e-12 and (best is None or saving > best[0]):
            best = saving, halves
    return None if best is None else best[1]


def _node_of(state: State, kind: NodeKind, jobs: list[tuple[str, int]]) -> _Node:
    node = _Node(kind, frozenset(range(len(kind.types))))
    for name, gpus in jobs:
        node.types = node.types_with(gpus, _types_of(state, name, kind, gpus))
        node.jobs.append((name, gpus))
    return node


def _widen(state: State, nodes: Sequence[_Node], wider: Widths) -> None:
    """Give GPUs that would be idle to the job that gains most from them."""
    for node in nodes:
        if node.is_fixed:
            continue
        while True:
            taken = node.cheapest()
            spare = node.kind.sizes[taken] - node.used
            moves = [
                (gain, name, gpus, more)
                for name, gpus in node.jobs
                for gain, more in (wider(name, node.kind, gpus, spare) if spare > 0 else ())
                if taken in _types_of(state, name, node.kind, more)
            ]
            if not moves:
                break
            _, name, gpus, more = max(moves, key=lambda each: each[0])
            node.jobs[node.jobs.index((name, gpus))] = (name, more)
            node.types = frozenset({taken})


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
    for running in state.fixed.values():
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
