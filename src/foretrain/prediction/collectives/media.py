"""The media of a group: inside a node and between nodes, at the rates that concurrent groups leave it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from foretrain.errors import InvalidRequest
from foretrain.prediction.collectives._base import Group
from foretrain.prediction.collectives.algorithms import flat_ring
from foretrain.prediction.collectives.calibration import NETWORK, Calibration, technology
from foretrain.prediction.collectives.medium import Medium
from foretrain.prediction.collectives.network import MESH, Network, Tier


@dataclass(frozen=True, slots=True)
class Media:
    """`inside` is None if no two members share a node, `outside` if all do.

    `throughout` is the medium of a ring or chain through all members; `server` is the network of a node used
    by one member alone.
    """

    inside: Medium | None
    outside: Medium | None
    throughout: Medium
    server: Medium | None = None


@lru_cache(maxsize=4096)
def media_of(group: Group, network: Network, clock_hertz: float, learned: Calibration) -> Media:
    """The media of a group; a group that does not fit the network raises `InvalidRequest`."""
    if group.per_node * group.concurrent > network.devices_per_node or group.nodes > network.nodes:
        raise InvalidRequest(
            f"{group.concurrent} groups of {group.size} devices, {group.per_node} of each on a node, do not "
            f"fit {network.nodes} nodes of {network.devices_per_node} devices"
        )
    inside = outside = server = None
    if group.per_node > 1:
        inside = _medium(_present(network.intra, "inside a node"), group, clock_hertz, learned)
    if group.nodes > 1:
        tier = _present(network.inter, "between nodes")
        outside = _medium(tier, group, clock_hertz, learned)
        alone = tier.bytes_per_second_among(1, group.concurrent, flows=group.nodes - 1)
        server = replace(outside, peer_bytes_per_second=alone)
    throughout = inside or outside
    if inside is not None and outside is not None:
        throughout = flat_ring(group.per_node, group.nodes, inside, outside)
    assert throughout is not None
    return Media(inside, outside, throughout, server)


def _present(tier: Tier | None, where: str) -> Tier:
    if tier is None:
        raise InvalidRequest(f"the network has no link {where}, but a group communicates there")
    return tier


def _medium(tier: Tier, group: Group, clock_hertz: float, learned: Calibration) -> Medium:
    kind = technology(tier.kind)
    behaviour = learned.behaviours[kind]
    cycle = learned.link(tier.kind, tier.link).pace / clock_hertz
    active = group.per_node * group.concurrent
    rate = tier.bytes_per_second_among(group.per_node, active)
    to_all = tier.bytes_per_second_among(group.per_node, active, flows=max(1, group.nodes - 1))
    extra = tier.latency_seconds if kind == NETWORK else 0.0
    return Medium(
        bytes_per_second=rate,
        copy_bytes_per_second=behaviour.copy_bytes_per_second,
        startup_seconds=tier.startup_seconds,
        step_seconds=tier.latency_seconds,
        low_latency_share=behaviour.low_latency_share,
        bulk_startup_seconds=behaviour.bulk_startup_cycles * cycle,
        bulk_step_seconds=behaviour.bulk_step_cycles * cycle,
        saturation_bytes=0.0 if tier.topology == MESH else behaviour.saturation_bytes,
        peer_bytes_per_second=to_all * behaviour.peer_share,
        peer_copy_bytes_per_second=behaviour.peer_copy_bytes_per_second,
        peer_startup_seconds=behaviour.peer_startup_cycles * cycle + extra,
        peer_step_seconds=behaviour.peer_step_cycles * cycle,
        in_switch_bytes_per_second=tier.in_switch_bytes_per_second,
    )
