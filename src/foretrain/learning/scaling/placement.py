"""Where a data-parallel job runs: how many devices it has on each node."""

from __future__ import annotations

from dataclasses import dataclass

from foretrain.errors import InvalidRequest

_MOST = 1_000_000


@dataclass(frozen=True, slots=True)
class Placement:
    """Devices on each node. The order of nodes does not matter to any form, so the fullest stands first."""

    devices_per_node: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.devices_per_node or min(self.devices_per_node) < 1:
            raise InvalidRequest(f"a placement has at least one device on each node, not {self}")
        object.__setattr__(self, "devices_per_node", tuple(sorted(self.devices_per_node, reverse=True)))

    def __str__(self) -> str:
        return "+".join(str(count) for count in self.devices_per_node)

    @property
    def nodes(self) -> int:
        """Nodes in use."""
        return len(self.devices_per_node)

    @property
    def devices(self) -> int:
        """Devices on all nodes together."""
        return sum(self.devices_per_node)

    @property
    def fullest(self) -> int:
        """Devices on the node that has most."""
        return self.devices_per_node[0]


def parse_placement(text: str) -> Placement:
    """`4` is four devices on one node, `4+4+2` are three nodes."""
    counts = [part.strip() for part in text.split("+")]
    if not all(part.isascii() and part.isdigit() and 0 < int(part) < _MOST for part in counts):
        raise InvalidRequest(
            f"placement {text!r} is not devices on each node: 4 is one node with four, 4+4+2 are three nodes"
        )
    return Placement(tuple(int(part) for part in counts))


def spread(nodes: int, devices: int) -> Placement:
    """So many devices on so many nodes, as evenly as they go."""
    if not 0 < nodes <= devices:
        raise InvalidRequest(f"{devices} devices cannot use {nodes} nodes; each node has at least one device")
    if devices >= _MOST:
        raise InvalidRequest(f"{devices} devices are beyond any cluster")
    each, over = divmod(devices, nodes)
    return Placement(tuple(each + (index < over) for index in range(nodes)))
