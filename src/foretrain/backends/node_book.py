"""The nodes of a real fleet: which host each of them is, which jobs it holds, and what that costs.

Nodes are numbers to policies and machines to a cluster (`HostMap`). What they hold is kept as intervals
between changes, and the ledger of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from foretrain.backends.executors._base import Host
from foretrain.encoding import encode
from foretrain.scheduling.accounting import Ledger
from foretrain.scheduling.problem import Fleet, NodeType
from foretrain.scheduling.state import NodeState

Shares = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class NodeInterval:
    """A node that held the same jobs from `start_seconds` on; `end_seconds` is None while it lasts.

    `is_last` says that the node was switched off at the end.
    """

    position: int
    node: int
    node_type: str
    usd_per_hour: float
    on_since: float
    start_seconds: float
    shares: Shares
    end_seconds: float | None = None
    is_last: bool = False

    @property
    def state(self) -> NodeState:
        """As policies see it."""
        return NodeState(self.node, self.node_type, self.on_since, self.shares)

    def row(self) -> dict[str, Any]:
        """As it is stored."""
        row: dict[str, Any] = encode(self)
        return row


def interval_of(row: Mapping[str, Any]) -> NodeInterval:
    """From its row in the store."""
    names = NodeInterval.__dataclass_fields__
    values = {name: row[name] for name in names if name != "shares"}
    return NodeInterval(**values, shares=tuple((job, int(gpus)) for job, gpus in row["shares"]))


class NodeBook:
    """The intervals of all nodes. Methods return the intervals they changed, to be stored."""

    def __init__(self, fleet: Fleet, stored: Iterable[NodeInterval] = ()) -> None:
        self.ledger = Ledger()
        self._fleet = fleet
        self._open: dict[int, NodeInterval] = {}
        self._closed: list[NodeInterval] = []
        for interval in stored:
            self._take(interval)
        self._next = len(self._closed) + len(self._open)

    @property
    def nodes(self) -> dict[int, NodeState]:
        """The nodes that are on."""
        return {node: interval.state for node, interval in self._open.items()}

    @property
    def intervals(self) -> tuple[NodeInterval, ...]:
        """All intervals, open ones last."""
        return (*self._closed, *self._open.values())

    def hold(self, node: int, node_type: str, shares: Shares, now: float) -> list[NodeInterval]:
        """A node holds these jobs from now on; it is switched on, or over to another type, where needed."""
        current = self._open.get(node)
        if current is not None and (current.node_type, current.shares) == (node_type, shares):
            return []
        changed = []
        on_since = now
        if current is not None:
            is_last = current.node_type != node_type
            changed += self._close(node, now, is_last)
            on_since = now if is_last else current.on_since
        price = self._fleet.types[node_type].usd_per_hour
        opened = NodeInterval(self._next, node, node_type, price, on_since, now, shares)
        self._next += 1
        self._open[node] = opened
        return [*changed, opened]

    def drop(self, job: str, now: float) -> list[NodeInterval]:
        """A job no longer uses its nodes; these stay on."""
        changed = []
        for node, interval in list(self._open.items()):
            shares = tuple(each for each in interval.shares if each[0] != job)
            if shares != interval.shares:
                changed += self.hold(node, interval.node_type, shares, now)
        return changed

    def switch_off(self, node: int, now: float) -> list[NodeInterval]:
        """A node is not paid from now on."""
        return self._close(node, now, is_last=True) if node in self._open else []

    def spent(self, now: float) -> dict[str, float]:
        """What each job has spent by now."""
        spent = dict(self.ledger.usd_by_job)
        for interval in self._open.values():
            usd = interval.usd_per_hour / 3600 * (now - interval.start_seconds)
            for job, gpus in interval.shares:
                spent[job] = spent.get(job, 0.0) + usd * gpus / interval.state.used_gpus
        return spent

    def running_usd(self, now: float) -> float:
        """What nodes that are on cost since their last change."""
        return sum(each.usd_per_hour / 3600 * (now - each.start_seconds) for each in self._open.values())

    def usd_per_second(self) -> float:
        """The price of all nodes that are on."""
        return sum(each.usd_per_hour / 3600 for each in self._open.values())

    def _close(self, node: int, now: float, is_last: bool) -> list[NodeInterval]:
        closed = replace(self._open.pop(node), end_seconds=now, is_last=is_last)
        self._take(closed)
        return [closed]

    def _take(self, interval: NodeInterval) -> None:
        if interval.end_seconds is None:
            self._open[interval.node] = interval
            return
        self._closed.append(interval)
        price = self._price(interval)
        self.ledger.charge(interval.state, price, interval.start_seconds, interval.end_seconds)
        if interval.is_last:
            self.ledger.close(interval.state, price, interval.end_seconds)

    def _price(self, interval: NodeInterval) -> NodeType:
        return replace(self._fleet.types[interval.node_type], usd_per_hour=interval.usd_per_hour)


def billed_usd(intervals: Iterable[NodeInterval], fleet: Fleet, start: float, end: float) -> float:
    """What nodes cost from `start` to `end`; billing units are added where a node is switched off."""
    total = 0.0
    for each in intervals:
        node_type = replace(fleet.types[each.node_type], usd_per_hour=each.usd_per_hour)
        last = end if each.end_seconds is None else each.end_seconds
        total += node_type.usd_per_second * max(0.0, min(last, end) - max(each.start_seconds, start))
        if start <= last < end:
            total += unused_usd(each, fleet)
    return total


def unused_usd(interval: NodeInterval, fleet: Fleet) -> float:
    """What the provider's billing units add where a node was switched off; else nothing."""
    if not interval.is_last or interval.end_seconds is None:
        return 0.0
    node_type = replace(fleet.types[interval.node_type], usd_per_hour=interval.usd_per_hour)
    used = interval.end_seconds - interval.on_since
    return node_type.usd_per_second * (node_type.billed_seconds(used) - used)


class HostMap:
    """The host of each node. A node keeps its host; one whose host failed takes a spare one, if there is
    any.
    """

    def __init__(self, fleet: Fleet, stored: Mapping[str, str]) -> None:
        self.names: dict[int, str] = {int(node): host for node, host in stored.items()}
        self._needed = {
            node: max(fleet.types[name].gpus for name in group.types)
            for index, group in enumerate(fleet.groups)
            for node in fleet.nodes_of(index)
        }

    def update(self, hosts: Sequence[Host]) -> frozenset[int]:
        """Match nodes with the hosts there are now; returns the nodes without a working host."""
        alive = {host.name: host for host in hosts if host.is_alive}
        lost = [node for node in self._needed if self.names.get(node) not in alive]
        spare = [host for name, host in alive.items() if name not in self.names.values()]
        for node in sorted(lost, key=lambda each: -self._needed[each]):
            fitting = [host for host in spare if host.gpus >= self._needed[node]]
            if fitting:
                best = min(fitting, key=lambda host: host.gpus)
                spare.remove(best)
                self.names[node] = best.name
        return frozenset(node for node in self._needed if self.names.get(node) not in alive)

    def stored(self) -> dict[str, str]:
        """As it is stored."""
        return {str(node): host for node, host in self.names.items()}
