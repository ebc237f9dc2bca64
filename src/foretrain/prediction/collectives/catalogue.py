"""The algorithms of each verb, and the fastest of them by size, as a communication library chooses."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from foretrain.facts.devices import Device
from foretrain.prediction.collectives import algorithms
from foretrain.prediction.collectives._base import Collective, CollectiveCost, FloatArray, Group, Verb
from foretrain.prediction.collectives.algorithms import (
    send_seconds,
    shared_link_seconds,
    two_tier_server_seconds,
)
from foretrain.prediction.collectives.calibration import Calibration, calibration
from foretrain.prediction.collectives.media import Media, media_of
from foretrain.prediction.collectives.medium import Medium
from foretrain.prediction.collectives.network import Network, Tier, clock_hertz

Times = Iterator[tuple[str, FloatArray]]
"""Names of algorithms with their seconds."""
_ROOTED = {
    Verb.BROADCAST: (
        ("chain", algorithms.chain_broadcast_seconds),
        ("pipelined", algorithms.pipelined_broadcast_seconds),
        ("tree", algorithms.tree_broadcast_seconds),
    ),
    Verb.REDUCE: (
        ("chain", algorithms.chain_reduce_seconds),
        ("pipelined", algorithms.pipelined_reduce_seconds),
        ("tree", algorithms.tree_reduce_seconds),
    ),
}
_RINGS = {
    Verb.ALL_REDUCE: algorithms.ring_all_reduce_seconds,
    Verb.ALL_GATHER: algorithms.ring_all_gather_seconds,
    Verb.REDUCE_SCATTER: algorithms.ring_reduce_scatter_seconds,
}
_HIERARCHICAL = {
    Verb.ALL_REDUCE: algorithms.hierarchical_all_reduce_seconds,
    Verb.ALL_GATHER: algorithms.hierarchical_all_gather_seconds,
    Verb.REDUCE_SCATTER: algorithms.hierarchical_reduce_scatter_seconds,
}


def collective_cost(collective: Collective, network: Network, device: Device) -> CollectiveCost:
    """The fastest algorithm with its time and uncertainty. A group of one costs nothing."""
    group = collective.group
    if group.size == 1:
        return CollectiveCost(0.0, "none", "none", 1.0, 1.0, "no communication")
    message = np.array([collective.bytes], float)
    media = media_of(group, network, clock_hertz(device), calibration())
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
    message_bytes: FloatArray,
    group: Group,
    network: Network,
    device: Device,
    learned: Calibration | None = None,
) -> FloatArray:
    """Seconds of messages of many sizes, each with its fastest algorithm."""
    if group.size == 1:
        return np.zeros(np.shape(message_bytes))
    media = media_of(group, network, clock_hertz(device), learned or calibration())
    times = [seconds for _, seconds in algorithm_times(verb, np.asarray(message_bytes, float), group, media)]
    fastest = times[0]
    for other in times[1:]:
        fastest = np.minimum(fastest, other)
    return fastest


def algorithm_times(verb: Verb, message_bytes: FloatArray, group: Group, media: Media) -> Times:
    """All algorithms of a verb in a group of at least two, with their seconds."""
    if verb is Verb.SEND:
        yield "direct", send_seconds(message_bytes, media.outside or media.throughout)
    elif verb in _ROOTED:
        for name, algorithm in _ROOTED[verb]:
            yield name, algorithm(message_bytes, group.size, media.throughout)
    elif media.outside is None:
        yield from _inside(verb, message_bytes, group.size, media.throughout)
    else:
        yield from _across(verb, message_bytes, group, media, media.outside)


def _inside(verb: Verb, message_bytes: FloatArray, size: int, medium: Medium) -> Times:
    if verb in _RINGS:
        yield "ring", _RINGS[verb](message_bytes, size, medium)
        if verb is Verb.ALL_REDUCE and algorithms.can_sum(size, medium):
            yield "in switch", algorithms.in_switch_all_reduce_seconds(message_bytes, size, medium)
    elif verb is Verb.ALL_TO_ALL:
        yield "direct", algorithms.direct_all_to_all_seconds(message_bytes, size, medium)
    else:
        yield "direct", shared_link_seconds(message_bytes, size - 1, medium)


def _across(verb: Verb, message_bytes: FloatArray, group: Group, media: Media, outside: Medium) -> Times:
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
