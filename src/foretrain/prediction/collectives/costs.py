"""The time of a collective: a verb, a message, a group of devices, and the fastest algorithm among them.

A communication library chooses the algorithm of a verb by size. The media of a group are inside a node and
between nodes, at the rates that concurrent groups leave it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

import numpy as np

from foretrain.errors import InvalidRequest
from foretrain.facts.devices import Device
from foretrain.prediction.collectives import algorithms
from foretrain.prediction.collectives.algorithms import (
    Medium,
    flat_ring,
    send_seconds,
    shared_link_seconds,
    two_tier_server_seconds,
)
from foretrain.prediction.collectives.network import (
    MESH,
    CollectiveCalibration,
    Network,
    Tier,
    calibration,
)
from foretrain.prediction.operators.pricing import Floats


class Verb(StrEnum):
    """The kind of a collective.

    `bytes` of a collective is always the whole tensor: what every member holds after an all-gather, before a
    reduce-scatter, and sends in an all-to-all. In a push or a pull one member is the server, and every other
    member moves the whole message to or from it.
    """

    BROADCAST = "broadcast"
    REDUCE = "reduce"
    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_TO_ALL = "all-to-all"
    SEND = "send"
    PUSH = "push"
    PULL = "pull"


@dataclass(frozen=True, slots=True)
class Group:
    """`size` devices, `per_node` of them on each node; `concurrent` such groups share the links of a node."""

    size: int
    per_node: int
    concurrent: int = 1

    def __post_init__(self) -> None:
        if min(self.size, self.per_node, self.concurrent) < 1:
            raise InvalidRequest(
                f"size, per_node and concurrent of a group must be at least 1, got {self.size}, "
                f"{self.per_node} and {self.concurrent}"
            )
        if self.per_node > self.size:
            raise InvalidRequest(f"a group of {self.size} cannot have {self.per_node} members on one node")

    @property
    def nodes(self) -> int:
        """Number of nodes; the last may hold fewer members."""
        return -(-self.size // self.per_node)


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective of a group; `bytes` is the whole message, see `Verb`."""

    verb: Verb
    bytes: float
    group: Group


@dataclass(frozen=True, slots=True)
class CollectiveCost:
    """Seconds, the algorithm and the slowest tier, and quantiles of measured / predicted."""

    seconds: float
    algorithm: str
    tier: str
    p10: float
    p90: float
    source: str


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
def media_of(group: Group, network: Network, clock_hertz: float, learned: CollectiveCalibration) -> Media:
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
        # The server is alone on its node: only concurrent groups share its network.
        alone = tier.bytes_per_second_among(1, group.concurrent, flows=group.nodes - 1)
        server = replace(outside, peer_bytes_per_second=alone)
    throughout = inside or outside
    # One ring through all nodes is as fast as the slower of the two media.
    if inside is not None and outside is not None:
        throughout = flat_ring(group.per_node, group.nodes, inside, outside)
    assert throughout is not None
    return Media(inside, outside, throughout, server)


def _present(tier: Tier | None, where: str) -> Tier:
    if tier is None:
        raise InvalidRequest(f"the network has no link {where}, but a group communicates there")
    return tier


def _medium(tier: Tier, group: Group, clock_hertz: float, learned: CollectiveCalibration) -> Medium:
    behaviour = learned.technologies[tier.kind.behaviour]
    cycle = learned.link(tier.kind, tier.link).pace / clock_hertz
    active = group.per_node * group.concurrent
    rate = tier.bytes_per_second_among(group.per_node, active)
    to_all = tier.bytes_per_second_among(group.per_node, active, flows=max(1, group.nodes - 1))
    extra = tier.latency_seconds if tier.kind.joins_nodes else 0.0
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


Times = Iterator[tuple[str, Floats]]
"""Names of algorithms with their seconds."""
_FROM_ROOT = (
    ("chain", algorithms.chain_broadcast_seconds),
    ("pipelined", algorithms.pipelined_broadcast_seconds),
    ("tree", algorithms.tree_broadcast_seconds),
)
"""A reduction is a broadcast in reverse, with a sum at each hop that takes no time of its own."""
_RINGS = {
    Verb.ALL_REDUCE: algorithms.ring_all_reduce_seconds,
    Verb.ALL_GATHER: algorithms.ring_gather_seconds,
    Verb.REDUCE_SCATTER: algorithms.ring_gather_seconds,
}
_HIERARCHICAL = {
    Verb.ALL_REDUCE: algorithms.hierarchical_all_reduce_seconds,
    Verb.ALL_GATHER: algorithms.hierarchical_gather_seconds,
    Verb.REDUCE_SCATTER: algorithms.hierarchical_gather_seconds,
}


def price_collective(collective: Collective, network: Network, device: Device) -> CollectiveCost:
    """The fastest algorithm with its time and uncertainty. A group of one costs nothing."""
    group = collective.group
    if group.size == 1:
        return CollectiveCost(0.0, "none", "none", 1.0, 1.0, "no communication")
    message = np.array([collective.bytes], float)
    media = media_of(group, network, device.clock_hertz, calibration())
    times = {
        name: float(seconds[0]) for name, seconds in algorithm_times(collective.verb, message, group, media)
    }
    algorithm = min(times, key=lambda name: times[name])
    tier = _bottleneck(group, network)
    spread = calibration().spread(tier.kind, tier.link, tier.topology)
    is_measured = calibration().is_measured(tier.link, tier.topology)
    source = f"collectives: {tier.link} {'measured' if is_measured else 'from its technology'}"
    return CollectiveCost(times[algorithm], algorithm, tier.name, spread.p10, spread.p90, source)


def collective_seconds(
    verb: Verb,
    message_bytes: Floats,
    group: Group,
    network: Network,
    device: Device,
    learned: CollectiveCalibration | None = None,
) -> Floats:
    """Seconds of messages of many sizes, each with its fastest algorithm."""
    if group.size == 1:
        return np.zeros(np.shape(message_bytes))
    media = media_of(group, network, device.clock_hertz, learned or calibration())
    times = [seconds for _, seconds in algorithm_times(verb, np.asarray(message_bytes, float), group, media)]
    # A library takes the fastest algorithm for each size, so that the choice changes along the messages.
    fastest = times[0]
    for other in times[1:]:
        fastest = np.minimum(fastest, other)
    return fastest


def algorithm_times(verb: Verb, message_bytes: Floats, group: Group, media: Media) -> Times:
    """All algorithms of a verb in a group of at least two, with their seconds."""
    if verb is Verb.SEND:
        yield "direct", send_seconds(message_bytes, media.outside or media.throughout)
    elif verb in (Verb.BROADCAST, Verb.REDUCE):
        for name, algorithm in _FROM_ROOT:
            yield name, algorithm(message_bytes, group.size, media.throughout)
    elif media.outside is None:
        yield from _inside(verb, message_bytes, group.size, media.throughout)
    else:
        yield from _across(verb, message_bytes, group, media, media.outside)


def _inside(verb: Verb, message_bytes: Floats, size: int, medium: Medium) -> Times:
    if verb in _RINGS:
        yield "ring", _RINGS[verb](message_bytes, size, medium)
        if verb is Verb.ALL_REDUCE and algorithms.can_sum(size, medium):
            yield "in switch", algorithms.in_switch_all_reduce_seconds(message_bytes, size, medium)
    elif verb is Verb.ALL_TO_ALL:
        yield "direct", algorithms.direct_all_to_all_seconds(message_bytes, size, medium)
    else:
        yield "direct", shared_link_seconds(message_bytes, size - 1, medium)


def _across(verb: Verb, message_bytes: Floats, group: Group, media: Media, outside: Medium) -> Times:
    here, inside = group.per_node, media.inside
    if verb is Verb.ALL_TO_ALL:
        seconds = algorithms.two_tier_all_to_all_seconds(message_bytes, group.size, here, inside, outside)
        yield "direct", seconds
    elif verb in (Verb.PUSH, Verb.PULL):
        away = group.size - here
        server = media.server or outside
        yield "direct", two_tier_server_seconds(message_bytes, here - 1, away, inside, server)
    else:
        yield "ring", _RINGS[verb](message_bytes, group.size, media.throughout)
        if inside is not None:
            yield "hierarchical", _HIERARCHICAL[verb](message_bytes, here, group.nodes, inside, outside)
        elif verb is Verb.ALL_REDUCE:
            yield "tree", algorithms.tree_all_reduce_seconds(message_bytes, group.size, outside)


def _bottleneck(group: Group, network: Network) -> Tier:
    tier = network.inter if group.nodes > 1 else network.intra
    assert tier is not None
    return tier
