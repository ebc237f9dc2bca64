"""Nodes filled job by job: never beyond the GPUs of a node nor the nodes of a group.

A packing starts with the jobs that may not move, and any others a policy wants to leave where they are; every
other job is then placed, or waits. Best fit: the node with the fewest GPUs left that still has room.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from foretrain.scheduling.decision import Decision, NodeLoad
from foretrain.scheduling.options import options_of
from foretrain.scheduling.problem import Configuration
from foretrain.scheduling.state import Running, State


@dataclass(slots=True)
class _Node:
    """A node that is on. `is_pinned`: a job on it stays where it is, so the node keeps its type."""

    group: int
    node_type: str
    free: int
    shares: list[tuple[str, int]]
    is_pinned: bool = False


class NodePacking:
    """The nodes of a decision in the making."""

    def __init__(self, state: State, staying: Mapping[str, Running] | None = None) -> None:
        """Start with the jobs of `staying` where they run; with those that may not be stopped by default."""
        fleet = state.fleet
        self._state = state
        self._gpus = {name: each.gpus for name, each in fleet.types.items()}
        self._free_nodes = [state.available(index) for index in range(len(fleet.groups))]
        self._groups_of: dict[str, list[int]] = {name: [] for name in fleet.types}
        for index, group in sorted(enumerate(fleet.groups), key=lambda each: len(each[1].types)):
            for name in group.types:
                self._groups_of[name].append(index)
        self._nodes: list[_Node] = []
        self._open: dict[tuple[str, int], list[int]] = {}
        self._times: dict[str, dict[tuple[str, int, int], float]] = {}
        self.chosen: dict[str, Configuration] = {}
        self.free_nodes = sum(self._free_nodes)
        self._idle_gpus = 0
        self._keep(state.fixed if staying is None else staying)

    def _keep(self, running: Mapping[str, Running]) -> None:
        at: dict[int, _Node] = {}
        for name, where in running.items():
            for number in where.nodes:
                node = at.get(number)
                if node is None:
                    group = self._state.fleet.group_of(number)
                    node_type = where.configuration.node_type
                    node = at[number] = _Node(group, node_type, self._gpus[node_type], [], is_pinned=True)
                    self._nodes.append(node)
                    self._free_nodes[group] -= 1
                    self.free_nodes -= 1
                node.shares.append((name, where.configuration.gpus))
                node.free -= where.configuration.gpus
            self.chosen[name] = where.configuration
        for index, node in enumerate(self._nodes):
            self._idle_gpus += node.free
            self._note_room(index, node)

    def copy(self) -> NodePacking:
        """A packing that is filled on its own from here."""
        other = object.__new__(NodePacking)
        other._state, other._gpus, other._groups_of = self._state, self._gpus, self._groups_of
        other._times = self._times
        other._free_nodes = list(self._free_nodes)
        other._nodes = [
            _Node(each.group, each.node_type, each.free, list(each.shares), each.is_pinned)
            for each in self._nodes
        ]
        other._open = {key: list(indices) for key, indices in self._open.items()}
        other.chosen = dict(self.chosen)
        other.free_nodes, other._idle_gpus = self.free_nodes, self._idle_gpus
        return other

    def _note_room(self, index: int, node: _Node) -> None:
        if node.free > 0:
            self._open.setdefault((node.node_type, node.free), []).append(index)

    @property
    def has_room(self) -> bool:
        """Whether any node could be switched on, or any that is on has a free GPU."""
        return self.free_nodes > 0 or self._idle_gpus > 0

    def can_open(self, node_type: str, nodes: int = 1) -> bool:
        """Whether one group still has that number of nodes of a type that are off."""
        return any(self._free_nodes[group] >= nodes for group in self._groups_of[node_type])

    def joins(self, configuration: Configuration) -> bool:
        """Whether a node that is on has room for a configuration."""
        return self._with_room(configuration.node_type, configuration.gpus) is not None

    def place(
        self, name: str, configuration: Configuration, alone: bool = False, spread: bool = False
    ) -> bool:
        """Give a job its GPUs, if there is room: on a node that is on, else on one that is switched on.

        `alone` leaves nodes that are on to others; `spread` prefers a node that is off.
        """
        if configuration.nodes > 1:
            placed = self._switch_on(name, configuration)
        elif alone:
            placed = self._switch_on(name, configuration)
            if placed:
                self._close(self._nodes[-1])
        elif spread:
            placed = self._switch_on(name, configuration) or self._join(name, configuration)
        else:
            placed = self._join(name, configuration) or self._switch_on(name, configuration)
        if placed:
            self.chosen[name] = configuration
        return placed

    def _with_room(self, node_type: str, gpus: int) -> int | None:
        for free in range(gpus, self._gpus[node_type] + 1):
            indices = self._open.get((node_type, free))
            while indices:
                node = self._nodes[indices[-1]]
                if node.free == free and node.node_type == node_type:
                    return indices[-1]
                indices.pop()
        return None

    def _join(self, name: str, configuration: Configuration) -> bool:
        index = self._with_room(configuration.node_type, configuration.gpus)
        if index is None:
            return False
        node = self._nodes[index]
        node.shares.append((name, configuration.gpus))
        node.free -= configuration.gpus
        self._idle_gpus -= configuration.gpus
        self._note_room(index, node)
        return True

    def _switch_on(self, name: str, configuration: Configuration) -> bool:
        for group in self._groups_of[configuration.node_type]:
            if self._free_nodes[group] >= configuration.nodes:
                self._free_nodes[group] -= configuration.nodes
                self.free_nodes -= configuration.nodes
                for _ in range(configuration.nodes):
                    free = self._gpus[configuration.node_type] - configuration.gpus
                    node = _Node(group, configuration.node_type, free, [(name, configuration.gpus)])
                    self._nodes.append(node)
                    self._idle_gpus += free
                    self._note_room(len(self._nodes) - 1, node)
                return True
        return False

    def _close(self, node: _Node) -> None:
        """Leave the GPUs of a node that are free unused."""
        self._idle_gpus -= node.free
        node.free = 0

    # ------------------------------------------------------------ improvements once all jobs are placed

    def widen(self) -> None:
        """Give free GPUs to jobs of their node, each time to the one whose time to the end falls most."""
        for node in self._nodes:
            while node.free > 0 and self._widen_one(node):
                pass

    def _widen_one(self, node: _Node) -> bool:
        best: tuple[float, int, int] | None = None
        for position, (name, gpus) in enumerate(node.shares):
            if self.chosen[name].nodes > 1:
                continue
            times = self._seconds(name)  # of a job that may not be stopped: its present configuration alone
            now = times.get((node.node_type, gpus, 1), 0.0)
            for more in range(1, node.free + 1):
                wider = times.get((node.node_type, gpus + more, 1), now)
                gain = (now - wider) / more
                if gain > 0 and (best is None or gain > best[0]):
                    best = (gain, position, more)
        if best is None:
            return False
        _, position, more = best
        name, gpus = node.shares[position]
        node.shares[position] = (name, gpus + more)
        node.free -= more
        self._idle_gpus -= more
        self.chosen[name] = Configuration(node.node_type, gpus + more)
        return True

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
        for node in self._nodes:
            if node.free > 0 and not node.is_pinned:
                self._shrink(node)

    def _shrink(self, node: _Node) -> None:
        types = self._state.fleet.types
        present = types[node.node_type]
        used = present.gpus - node.free
        for name in sorted(
            self._state.fleet.groups[node.group].types, key=lambda each: types[each].usd_per_hour
        ):
            other = types[name]
            if other.usd_per_hour >= present.usd_per_hour:
                return
            if other.gpu == present.gpu and other.gpus >= used and self._all_run_on(node, name):
                self._idle_gpus -= node.free - (other.gpus - used)
                node.node_type, node.free = name, other.gpus - used
                for job, gpus in node.shares:
                    self.chosen[job] = Configuration(name, gpus)
                return

    def _all_run_on(self, node: _Node, node_type: str) -> bool:
        for name, gpus in node.shares:
            times = self._seconds(name)
            there = times.get((node_type, gpus, 1))
            if there is None or there > times.get((node.node_type, gpus, 1), 0.0) * (1 + 1e-9):
                return False
        return True

    # ------------------------------------------------------------ the result

    @property
    def usd_per_second(self) -> float:
        """The price of all nodes that are on."""
        types = self._state.fleet.types
        return sum(types[node.node_type].usd_per_second for node in self._nodes)

    def loads(self) -> Iterator[NodeLoad]:
        """The nodes that are on."""
        for node in self._nodes:
            yield NodeLoad(node.group, node.node_type, tuple(node.shares))

    def decision(self, wake_at: float | None = None, notes: tuple[str, ...] = ()) -> Decision:
        """What was packed."""
        return Decision(tuple(self.loads()), wake_at, notes)
