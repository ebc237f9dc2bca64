"""Node types of the published studies, with the prices of `facts`, and the fleets of generated problems."""

from __future__ import annotations

from functools import cache

from foretrain.facts.offers import shipped_offers
from foretrain.scheduling.problem import Fleet, Market, NodeGroup, NodeType, elastic

_STUDY = "polimi-gpu-cost"


@cache
def study_types() -> dict[str, NodeType]:
    """The study's machines by name: NC6 to NC24X (K80), NV6 to NV24X (M60), server-1 to server-3 (in-house).

    NC24X and NV24X are 8-GPU nodes of the study. Its in-house servers have a cost per hour too.
    """
    return {
        each.name: each
        for each in (
            NodeType(
                name=offer.instance.removeprefix("Standard_"),
                gpu=offer.device or offer.family,
                gpus=offer.count,
                usd_per_hour=offer.usd_per_hour,
                market=Market.OWNED if offer.provider == "in-house" else Market.ON_DEMAND,
            )
            for offer in shipped_offers()
            if offer.source == _STUDY
        )
    }


def cloud(nodes: int) -> Fleet:
    """Up to `nodes` nodes, each any of the eight cloud types."""
    return elastic(_cloud_types(), nodes)


def hybrid(nodes: int) -> Fleet:
    """The three in-house servers, once for every four nodes (at least once), beside `nodes` cloud nodes."""
    cloud_types = {each.name: each for each in _cloud_types()}
    servers = {name: each for name, each in study_types().items() if each.market is Market.OWNED}
    of_each = max(1, nodes // 4)
    groups = (NodeGroup(nodes, tuple(cloud_types)), *(NodeGroup(of_each, (name,)) for name in servers))
    return Fleet({**cloud_types, **servers}, groups)


def owned(nodes: int) -> Fleet:
    """An owned heterogeneous cluster: nodes of 8 GTX 1080 Ti, 4 K80 and 4 M60, in turn.

    The costs of K80 and M60 nodes are those of the cloud types of that size.
    """
    names = ("server-2", "NC24", "NV24")
    counts = [len(range(first, nodes, len(names))) for first in range(len(names))]
    groups = tuple(NodeGroup(count, (name,)) for name, count in zip(names, counts, strict=True) if count)
    return Fleet({name: study_types()[name] for name in names}, groups)


def _cloud_types() -> list[NodeType]:
    return [each for each in study_types().values() if each.market is Market.ON_DEMAND]
