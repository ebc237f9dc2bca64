"""Which jobs share a node, and of which type it is: the one packer of all policies.

A packing starts with the jobs that may not move, and any others a policy wants to leave where they are; every
other job is then placed, or waits. GPUs of a node and nodes of a group are never exceeded. Best fit: a job
joins the node with the fewest GPUs left that still has room, else a node is switched on.

- Rules and searches place job by job and name the node type with `Packing.place`.
- `price` and `milp` select a number of GPUs of one kind for every job first. `pack` then leaves the type of a
  node open among those of its kind on which all its jobs run, and takes the cheapest at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from foretrain.scheduling.loop import Decision, NodeLoad
from foretrain.scheduling.options import Integers, NodeKind, Places, options_of
from foretrain.scheduling.problem import Configuration
from foretrain.scheduling.state import Running, State

Family = tuple[int | None, tuple[str, ...]]
"""Nodes a job looks through to join one: their group (None: any), and the types they may take, by size."""
Gains = Callable[[str, str, int, int], Iterable[tuple[float, int]]]
"""(job, node type, GPUs it has, GPUs to spare) -> (gain, GPUs) of every wider share that is better."""


@dataclass(slots=True)
class _Node:
    """A node that is on. `types` are those it may still take, by size; `most` the GPUs of the last of them.

    `is_pinned`: a job on it stays where it is, so the node keeps its type.
    """

    group: int
    family: Family
    types: tuple[str, ...]
    most: int
    used: int
    shares: list[tuple[str, int]]
    is_pinned: bool = False


class Packing:
    """The nodes of a decision in the making. `chosen` are the jobs that were placed by configuration."""

    def __init__(
        self, state: State, staying: Mapping[str, Running] | None = None, kinds: Sequence[NodeKind] = ()
    ) -> None:
        """Start with the jobs of `staying` where they run; with those that may not be stopped by default.

        With `kinds`, jobs join any node of their kind; without, only one of their node type.
        """
        fleet = state.fleet
        self._state = state
        self._gpus = {name: each.gpus for name, each in fleet.types.items()}
        self._kinds = {(kind.group, name): kind.types for kind in kinds for name in kind.types}
        self._free_nodes = [state.available(index) for index in range(len(fleet.groups))]
        self._groups_of: dict[str, list[int]] = {name: [] for name in fleet.types}
        # Groups with few types first: a group of many types also suits jobs that need another one.
        for index, group in sorted(enumerate(fleet.groups), key=lambda each: len(each[1].types)):
            for name in group.types:
                self._groups_of[name].append(index)
        self._nodes: list[_Node] = []
        self._open: dict[tuple[Family, int], list[int]] = {}
        self._times: dict[str, dict[tuple[str, int, int], float]] = {}
        self._idle_gpus = 0
        self.chosen: dict[str, Configuration] = {}
        self.left_out: list[str] = []
        self.free_nodes = sum(self._free_nodes)
        self._keep(state.fixed if staying is None else staying)

    def _keep(self, running: Mapping[str, Running]) -> None:
        at: dict[int, _Node] = {}
        for name, where in running.items():
            node_type, gpus = where.configuration.node_type, where.configuration.gpus
            for number in where.nodes:
                node = at.get(number)
                if node is None:
                    group = self._state.fleet.group_of(number)
                    of_kind = self._kinds.get((group, node_type))
                    family: Family = (None, (node_type,)) if of_kind is None else (group, of_kind)
                    most = self._gpus[node_type]
                    node = at[number] = _Node(group, family, (node_type,), most, 0, [], is_pinned=True)
                    self._nodes.append(node)
                    self._free_nodes[group] -= 1
                    self.free_nodes -= 1
                node.shares.append((name, gpus))
                node.used += gpus
            self.chosen[name] = where.configuration
        for index, node in enumerate(self._nodes):
            self._idle_gpus += node.most - node.used
            self._note_room(index, node)

    def copy(self) -> Packing:
        """A packing that is filled on its own from here."""
        other = object.__new__(Packing)
        other.__dict__.update(self.__dict__)
        other._free_nodes = list(self._free_nodes)
        other._nodes = [replace(each, shares=list(each.shares)) for each in self._nodes]
        other._open = {key: list(indices) for key, indices in self._open.items()}
        other.chosen, other.left_out = dict(self.chosen), list(self.left_out)
        return other

    def _note_room(self, index: int, node: _Node) -> None:
        if node.most > node.used:
            self._open.setdefault((node.family, node.most - node.used), []).append(index)

    @property
    def has_room(self) -> bool:
        """Whether any node could be switched on, or any that is on has a free GPU."""
        return self.free_nodes > 0 or self._idle_gpus > 0

    def can_open(self, node_type: str, nodes: int = 1) -> bool:
        """Whether one group still has that number of nodes of a type that are off."""
        return any(self._free_nodes[group] >= nodes for group in self._groups_of[node_type])

    def joins(self, configuration: Configuration) -> bool:
        """Whether a node that is on has room for a configuration."""
        family: Family = (None, (configuration.node_type,))
        most = self._gpus[configuration.node_type]
        return any(self._open.get((family, free)) for free in range(configuration.gpus, most + 1))

    def place(
        self, name: str, configuration: Configuration, alone: bool = False, spread: bool = False
    ) -> bool:
        """Give a job its GPUs, if there is room: on a node that is on, else on one that is switched on.

        `alone` leaves nodes that are on to others; `spread` prefers a node that is off.
        """
        types = (configuration.node_type,)
        family: Family = (None, types)
        groups = self._groups_of[configuration.node_type]
        gpus, nodes = configuration.gpus, configuration.nodes
        if nodes > 1 or alone:
            placed = self._switch_on(name, gpus, nodes, types, family, groups, is_shared=False)
        elif spread:
            placed = self._switch_on(name, gpus, 1, types, family, groups) or self._join(
                name, gpus, types, family
            )
        else:
            placed = self._join(name, gpus, types, family) or self._switch_on(
                name, gpus, 1, types, family, groups
            )
        if placed:
            self.chosen[name] = configuration
        return placed

    def _join(self, name: str, gpus: int, types: tuple[str, ...], family: Family) -> bool:
        """Put a job on the fullest node that takes it, the one that was filled last if several do."""
        for free in range(gpus, self._gpus[family[1][-1]] + 1):
            indices = self._open.get((family, free), ())
            for position in range(len(indices) - 1, -1, -1):
                index = indices[position]
                node = self._nodes[index]
                remaining = self._suitable(node, types, node.used + gpus)
                if not remaining:
                    continue
                self._open[family, free].pop(position)
                self._narrow(node, remaining)
                node.shares.append((name, gpus))
                node.used += gpus
                self._idle_gpus -= gpus
                self._note_room(index, node)
                return True
        return False

    def _suitable(self, node: _Node, types: tuple[str, ...], used: int) -> tuple[str, ...]:
        """The types a node may still take if it holds `used` GPUs and a job that runs on `types` only."""
        if node.types == types and len(types) == 1:  # searches ask this most often
            return types if self._gpus[types[0]] >= used else ()
        return tuple(each for each in node.types if each in types and self._gpus[each] >= used)

    def _narrow(self, node: _Node, types: tuple[str, ...]) -> None:
        if types != node.types:
            most = self._gpus[types[-1]]
            self._idle_gpus -= node.most - most
            node.types, node.most = types, most

    def _switch_on(
        self,
        name: str,
        gpus: int,
        nodes: int,
        types: tuple[str, ...],
        family: Family,
        groups: Iterable[int],
        is_shared: bool = True,
    ) -> bool:
        """Take nodes of the first group that has enough; others may join one that `is_shared`."""
        most = self._gpus[types[-1]]
        for group in groups:
            if self._free_nodes[group] >= nodes:
                self._free_nodes[group] -= nodes
                self.free_nodes -= nodes
                for _ in range(nodes):
                    node = _Node(group, family, types, most, gpus, [(name, gpus)])
                    self._nodes.append(node)
                    if is_shared:
                        self._idle_gpus += most - gpus
                        self._note_room(len(self._nodes) - 1, node)
                return True
        return False

    # ------------------------------------------------------------ improvements once all jobs are placed

    def widen(self) -> None:
        """Give free GPUs to jobs of their node, each time to the one whose time to the end falls most."""
        for node in self._nodes:
            self._widen(node, self._seconds_saved)

    def _widen(self, node: _Node, gains: Gains) -> None:
        while node.most > node.used:
            node_type = self._cheapest(node)
            spare = self._gpus[node_type] - node.used
            best: tuple[float, int, int] | None = None
            for position, (name, gpus) in enumerate(node.shares if spare else ()):
                for gain, wider in gains(name, node_type, gpus, spare):
                    if best is None or gain > best[0]:
                        best = gain, position, wider
            if best is None:
                return
            _, position, wider = best
            name, gpus = node.shares[position]
            self._narrow(node, (node_type,))
            node.shares[position] = (name, wider)
            node.used += wider - gpus
            self._idle_gpus -= wider - gpus
            self.chosen[name] = Configuration(node_type, wider)

    def _seconds_saved(self, name: str, node_type: str, gpus: int, spare: int) -> Iterable[tuple[float, int]]:
        """Seconds each further GPU saves; none for a job that may not be stopped."""
        times = self._seconds(name)
        now = times.get((node_type, gpus, 1), 0.0)
        for more in range(1, spare + 1):
            gain = (now - times.get((node_type, gpus + more, 1), now)) / more
            if gain > 0:
                yield gain, gpus + more

    def seconds_left(self, name: str) -> float:
        """The time to the end of a job that is placed."""
        configuration = self.chosen[name]
        return self._seconds(name)[configuration.node_type, configuration.gpus, configuration.nodes]

    def _seconds(self, name: str) -> dict[tuple[str, int, int], float]:
        """The time to the end of a job by node type, GPUs and nodes, where it may run."""
        times = self._times.get(name)
        if times is None:
            times = self._times[name] = {
                (each.node_type, each.gpus, each.nodes): seconds
                for each, seconds, _, _ in options_of(self._state, self._state.jobs[name])
            }
        return times

    def shrink(self) -> None:
        """Replace nodes by the cheapest type of the same GPU that has room for their jobs.

        Only nodes without jobs that stay, and only where no job takes longer on the other type.
        """
        types = self._state.fleet.types
        for node in self._nodes:
            if node.most == node.used or node.is_pinned:
                continue
            present = types[node.types[0]]
            in_group = self._state.fleet.groups[node.group].types
            for name in sorted(in_group, key=lambda each: types[each].usd_per_hour):
                other = types[name]
                if other.usd_per_hour >= present.usd_per_hour:
                    break
                if other.gpu == present.gpu and other.gpus >= node.used and self._all_run_on(node, name):
                    self._narrow(node, (name,))
                    for job, gpus in node.shares:
                        self.chosen[job] = Configuration(name, gpus)
                    break

    def _all_run_on(self, node: _Node, node_type: str) -> bool:
        for name, gpus in node.shares:
            times = self._seconds(name)
            there = times.get((node_type, gpus, 1))
            if there is None or there > times.get((node.types[0], gpus, 1), 0.0) * (1 + 1e-9):
                return False
        return True

    # ------------------------------------------------------------ jobs of a kind, whatever the node type

    def place_on(
        self, places: Places, selected: Iterable[tuple[str, int]], gains: Gains | None = None
    ) -> None:
        """Put each job on its place: those that span nodes first, then the widest.

        Nodes that are left split those whose jobs are cheaper apart. GPUs that stay idle then go to the jobs
        that gain most, since they are paid anyway.
        """
        jobs = [(name, place) for name, place in selected if name not in self._state.fixed]
        spanning = [job for job in jobs if places.nodes[job[1]] > 1]
        single = [job for job in jobs if places.nodes[job[1]] == 1]
        for name, place in (*spanning, *sorted(single, key=lambda job: -places.gpus[job[1]])):
            self._place_kind(name, place, places)
        self._split()
        if gains is not None:
            for node in self._nodes:
                if not node.is_pinned:
                    self._widen(node, gains)

    def _place_kind(self, name: str, place: int, places: Places) -> None:
        """Put a job on a place, a number of GPUs of one kind; it is `left_out` where there is no room."""
        kind, gpus = places.kinds[int(places.kind[place])], int(places.gpus[place])
        family: Family = (kind.group, kind.types)
        types: tuple[str, ...]
        if places.nodes[place] > 1:
            types = (places.types_of[place][0].node_type,)
        else:
            types = self._types_of(kind.types, name, gpus)
            if self._join(name, gpus, types, family):
                return
        nodes = int(places.nodes[place])
        if not types or not self._switch_on(name, gpus, nodes, types, family, (kind.group,), nodes == 1):
            self.left_out.append(name)

    def _types_of(self, types: Sequence[str], name: str, gpus: int) -> tuple[str, ...]:
        """The types on which a job has a time with `gpus` GPUs."""
        seconds = self._state.jobs[name].job.seconds
        return tuple(
            each for each in types if self._gpus[each] >= gpus and Configuration(each, gpus) in seconds
        )

    def _cheapest(self, node: _Node) -> str:
        if len(node.types) == 1:
            return node.types[0]
        types = self._state.fleet.types
        return min(node.types, key=lambda each: (types[each].usd_per_second, types[each].gpus))

    def _usd(self, node: _Node) -> float:
        return self._state.fleet.types[self._cheapest(node)].usd_per_second

    def _split(self) -> None:
        """Use nodes that are left to separate jobs that are cheaper apart."""
        waiting = list(self._nodes)
        while waiting:
            node = waiting.pop(0)
            if self._free_nodes[node.group] < 1 or node.is_pinned or len(node.shares) < 2:
                continue
            halves = self._cheaper_halves(node)
            if halves is None:
                continue
            self._free_nodes[node.group] -= 1
            self.free_nodes -= 1
            first, second = halves
            node.types, node.most, node.used, node.shares = first.types, first.most, first.used, first.shares
            self._nodes.append(second)
            waiting.extend((node, second))

    def _cheaper_halves(self, node: _Node) -> tuple[_Node, _Node] | None:
        """The two nodes that cost least in place of one, if they cost less than it.

        One of the halves fills a smaller size of node, largest jobs first.
        """
        best: tuple[float, tuple[_Node, _Node]] | None = None
        for size in (self._gpus[each] for each in node.family[1]):
            if size >= node.used:
                continue
            inside: list[tuple[str, int]] = []
            outside: list[tuple[str, int]] = []
            for job in sorted(node.shares, key=lambda each: -each[1]):
                fits = sum(gpus for _, gpus in inside) + job[1] <= size
                (inside if fits else outside).append(job)
            halves = self._node_of(node, inside), self._node_of(node, outside)
            if not all(half.shares and half.types for half in halves):
                continue
            saving = self._usd(node) - self._usd(halves[0]) - self._usd(halves[1])
            if saving > 1e-12 and (best is None or saving > best[0]):
                best = saving, halves
        return None if best is None else best[1]

    def _node_of(self, like: _Node, jobs: list[tuple[str, int]]) -> _Node:
        """A node of the same family that holds some jobs, of a type that suits all of them."""
        used = sum(gpus for _, gpus in jobs)
        types = tuple(each for each in like.family[1] if self._gpus[each] >= used)
        for name, gpus in jobs:
            types = self._types_of(types, name, gpus)
        most = self._gpus[types[-1]] if types else 0
        return _Node(like.group, like.family, types, most, used, jobs)

    # ------------------------------------------------------------ the result

    @property
    def usd_per_second(self) -> float:
        """The price of all nodes that are on."""
        return sum(self._usd(node) for node in self._nodes)

    @property
    def loads(self) -> tuple[NodeLoad, ...]:
        """The nodes that are on."""
        return tuple(NodeLoad(each.group, self._cheapest(each), tuple(each.shares)) for each in self._nodes)

    def decision(self, wake_at: float | None = None, notes: tuple[str, ...] = ()) -> Decision:
        """What was packed."""
        return Decision(self.loads, wake_at, notes)


def pack(
    state: State, places: Places, selected: Iterable[tuple[str, int]], gains: Gains | None = None
) -> Packing:
    """Nodes for jobs and their places; jobs that may not be moved stay on their nodes."""
    packing = Packing(state, kinds=places.kinds)
    packing.place_on(places, selected, gains)
    return packing


# ---------------------------------------------------------------- counts of jobs, without placing them


@lru_cache(maxsize=200_000)
def nodes_needed(counts: tuple[int, ...], most_gpus: int, free: tuple[int, ...] = ()) -> int:
    """Nodes for `counts[g - 1]` jobs of g GPUs each, beside the free GPUs of nodes that are on anyway."""
    left = list(counts)

    def fill(room: int) -> None:
        """Take the largest jobs that fit until none does."""
        for gpus in range(min(room, len(left)), 0, -1):
            while left[gpus - 1] and gpus <= room:
                left[gpus - 1] -= 1
                room -= gpus

    for room in free:
        fill(room)
    nodes = 0
    while any(left):
        fill(most_gpus)
        nodes += 1
    return nodes


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
