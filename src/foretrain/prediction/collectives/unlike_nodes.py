"""The network among nodes that differ, as one of equal nodes that is no quicker.

A ring, and each rail of a hierarchy, passes through every node, so the slowest sets its pace: of each tier
the smallest rates and the largest latencies count. Nodes that hold different numbers of devices are taken as
about as many nodes of equal size; what a node's network carries does not depend on how many of its devices
share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from foretrain.facts.hardware import Hardware
from foretrain.prediction.collectives.network import Network, Tier, network_of


def network_among(groups: Sequence[Hardware], inter: str | None = None) -> Network:
    """The network of all nodes of some groups; `inter` names the link between nodes."""
    if len(groups) == 1:
        (only,) = groups
        return network_of(only, only.links, inter or only.network)
    own = [
        network_of(replace(group, nodes=max(2, group.nodes)), group.links, inter or group.network)
        for group in groups
    ]
    devices, nodes = sum(group.devices for group in groups), sum(group.nodes for group in groups)
    per_node = _even_size(devices, nodes)
    differ = len({group.devices_per_node for group in groups}) > 1
    count = -(-devices // per_node)
    notes = [note for network in own for note in network.notes]
    if differ:
        notes.append(f"exchanges are timed as among {count} nodes of {per_node} devices")
    return Network(
        devices_per_node=per_node,
        nodes=count,
        intra=_slowest([network.intra for network in own]) if per_node > 1 else None,
        inter=_slowest([network.inter for network in own]),
        notes=tuple(dict.fromkeys(notes)),
    )


def _even_size(devices: int, nodes: int) -> int:
    """Devices of a node such that the number of nodes comes closest."""
    sizes = (devices // nodes, -(-devices // nodes))
    return min(sizes, key=lambda size: abs(-(-devices // size) - nodes))


def _slowest(tiers: Sequence[Tier | None]) -> Tier | None:
    """The slowest of some tiers with the worst that any of them has; None if there are none."""
    present = [tier for tier in tiers if tier is not None]
    if not present:
        return None
    worst = min(present, key=_rate)
    if all(tier == worst for tier in present):
        return worst
    each = min(tier.bytes_per_second_per_device for tier in present)
    by_node = [tier.bytes_per_second_per_node for tier in present if tier.bytes_per_second_per_node]
    is_network = bool(by_node)
    alone = min(tier.bytes_per_second_alone for tier in present) if is_network else each
    return replace(
        worst,
        bytes_per_second_per_device=each,
        bytes_per_second_per_node=min(by_node) if is_network else None,
        bytes_per_second_alone=alone,
        latency_seconds=max(tier.latency_seconds for tier in present),
        startup_seconds=max(tier.startup_seconds for tier in present),
        contention=0.0,  # in the rates above
        rings=(),
        in_switch_bytes_per_second=min(tier.in_switch_bytes_per_second for tier in present),
    )


def _rate(tier: Tier) -> float:
    return tier.bytes_per_second_per_node or tier.bytes_per_second_per_device
