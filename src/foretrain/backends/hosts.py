"""Which host is which node of the fleet: nodes are numbers to policies and machines to a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from foretrain.backends.executors._base import Host
from foretrain.scheduling.problem import Fleet


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
