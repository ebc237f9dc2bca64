"""Clusters: groups of equal nodes. A homogeneous cluster has one group; one device is a node of one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from foretrain.facts.cluster_files import is_cluster_file, read_cluster_file
from foretrain.facts.devices import with_watts
from foretrain.facts.hardware import Hardware, groups_of, hardware


@dataclass(frozen=True)
class Cluster:
    """Groups of equal nodes; no two groups are the same."""

    name: str
    groups: tuple[Hardware, ...]

    @property
    def devices(self) -> int:
        """All devices."""
        return sum(group.devices for group in self.groups)

    @property
    def nodes(self) -> int:
        """All nodes."""
        return sum(group.nodes for group in self.groups)

    @property
    def is_homogeneous(self) -> bool:
        """Whether all nodes are equal."""
        return len(self.groups) == 1

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each group; with its links where another group has the same name."""
        names = [group.name for group in self.groups]
        return tuple(
            f"{group.name} ({group.links or 'default links'})" if names.count(group.name) > 1 else group.name
            for group in self.groups
        )


def cluster(text: str) -> Cluster:
    """The cluster that `text` names: a device, an instance, a node type, or a cluster file."""
    if is_cluster_file(text):
        groups = groups_of(read_cluster_file(text))
        return Cluster(text if len(groups) > 1 else groups[0].name, groups)
    return Cluster(text, (hardware(text),))


def with_power_limit(machines: Cluster, watts: float | None) -> Cluster:
    """The cluster with every device limited to `watts`; None leaves the limits of the data sheets."""
    if watts is None:
        return machines
    groups = tuple(replace(group, device=with_watts(group.device, watts)) for group in machines.groups)
    return Cluster(f"{machines.name} at {watts:g} W", groups)
