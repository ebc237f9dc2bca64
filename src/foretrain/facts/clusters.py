"""Clusters whose nodes may differ: groups of equal nodes, read from a file (its form: `cluster_files`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foretrain.facts.cluster_files import is_cluster_file, read_cluster_file
from foretrain.facts.hardware import Hardware, groups_of, hardware


@dataclass(frozen=True)
class Cluster:
    """Groups of equal nodes; no two groups are alike."""

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
    def labels(self) -> tuple[str, ...]:
        """A name for each group; with its links where another is called the same."""
        names = [group.name for group in self.groups]
        return tuple(
            f"{group.name} ({group.links or 'usual links'})" if names.count(group.name) > 1 else group.name
            for group in self.groups
        )


def cluster(path: str | Path) -> Cluster:
    """The cluster that a file describes, be its nodes alike or not."""
    return Cluster(str(path), groups_of(read_cluster_file(path)))


def machines(text: str) -> Hardware | Cluster:
    """The hardware that `text` names: plain hardware wherever nodes are equal, in a file too."""
    if not is_cluster_file(text):
        return hardware(text)
    found = cluster(text)
    return found.groups[0] if len(found.groups) == 1 else found
