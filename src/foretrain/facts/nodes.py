"""Nodes: whole machines, how their devices are joined and what network they have; `data/nodes/*.toml`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from foretrain.facts.links import Link, link
from foretrain.facts.sheets import Sheet, data_root, read_entries
from foretrain.registry import Registry

TOPOLOGIES = ("nvswitch", "nvlink-mesh", "pcie-switch", "two-bridges", "host-memory", "host-bridge")
"""How the devices of a node can be joined, best first."""


@dataclass(frozen=True)
class Node:
    """One type of machine; `provider` sells or rents it."""

    id: str
    name: str
    provider: str
    aliases: tuple[str, ...]
    sheet: Sheet

    @property
    def device(self) -> str:
        """Id of the device it holds."""
        return self.sheet.text("device")

    @property
    def devices(self) -> int:
        """How many devices it holds."""
        return int(self.sheet.number("devices_per_node"))

    @property
    def intra(self) -> Link:
        """The link between its devices."""
        return link(self.sheet.text("intra_link"))

    @property
    def intra_topology(self) -> str:
        """How the links join its devices: one of `TOPOLOGIES`."""
        return self.sheet.text("intra_topology")

    @property
    def inter(self) -> Link | None:
        """The link of one network card, or None if nothing is known of the network."""
        return link(self.sheet.text("inter_link")) if self.sheet.has("inter_link") else None

    @property
    def nics(self) -> int:
        """Network cards that devices use between nodes; an unknown network raises `MissingData`."""
        return int(self.sheet.number("nics_per_node"))

    @property
    def single_flow_bytes_per_second(self) -> float | None:
        """What its cloud lets one TCP flow have, one direction; None if it sets no limit."""
        name = "single_flow_bytes_per_second_per_direction"
        return self.sheet.number(name) if self.sheet.has(name) else None

    @property
    def intra_bytes_per_second_per_device(self) -> float:
        """Achievable rate of all links of one device to its peers, one direction."""
        links_per_device = self.sheet.number("intra_links_per_device")
        return links_per_device * self.intra.achievable_bytes_per_second_per_direction

    @property
    def inter_bytes_per_second(self) -> float:
        """Achievable rate of its network cards together, one direction; unknown raises `MissingData`."""
        network = link(self.sheet.text("inter_link"))
        return self.nics * network.achievable_bytes_per_second_per_direction


@cache
def nodes() -> Registry[Node]:
    """All known nodes, by id and alias (`aws:p4d.24xlarge`)."""
    return Registry(
        "node",
        [
            Node(**entry.identity, aliases=entry.aliases, sheet=entry.sheet)
            for entry in read_entries(data_root() / "nodes", ("id", "name", "provider"))
        ],
        name=lambda node: node.id,
        aliases=lambda node: node.aliases,
    )


def node(name: str) -> Node:
    """The node called `name`; an unknown one raises `UnknownName` with the nearest."""
    return nodes()[name]
