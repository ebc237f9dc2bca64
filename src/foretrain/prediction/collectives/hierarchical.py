"""Two tiers: links inside a node, network cards between nodes. k members on a node, m nodes, p = k·m.

    all-reduce       reduce-scatter inside, all-reduce of n/k by each member across, all-gather inside
    all-gather       gather of each member's rail across (n/k bytes), then inside
    reduce-scatter   inside, then each member's rail across

The network sees 2(m-1)/m · n/k bytes of each member, on all rails at once: `outside` has the rate that one
member gets of its node's cards. A flat ring through all p members is often as good, and is tried too: it
enters and leaves each node once a channel, so B is the least of the link and the node's network together, and
of its steps 2(m-1) go across.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from foretrain.prediction.collectives._base import FloatArray
from foretrain.prediction.collectives.medium import Medium
from foretrain.prediction.collectives.ring import (
    ring_all_gather_seconds,
    ring_all_reduce_seconds,
    ring_reduce_scatter_seconds,
)
from foretrain.prediction.collectives.tree import tree_all_reduce_seconds


def inside_all_reduce_seconds(message_bytes: FloatArray, per_node: int, inside: Medium) -> FloatArray:
    """The part inside a node: a reduce-scatter before and an all-gather after, which take as long."""
    return 2 * ring_reduce_scatter_seconds(message_bytes, per_node, inside)


def across_all_reduce_seconds(
    message_bytes: FloatArray, per_node: int, nodes: int, outside: Medium
) -> FloatArray:
    """The part across nodes: all rails at once, by ring or by trees, whichever is quicker."""
    rail = message_bytes / per_node
    quicker: FloatArray = np.minimum(
        ring_all_reduce_seconds(rail, nodes, outside), tree_all_reduce_seconds(rail, nodes, outside)
    )
    return quicker


def hierarchical_all_reduce_seconds(
    message_bytes: FloatArray, per_node: int, nodes: int, inside: Medium, outside: Medium
) -> FloatArray:
    """Inside, across, inside."""
    around = inside_all_reduce_seconds(message_bytes, per_node, inside)
    return around + across_all_reduce_seconds(message_bytes, per_node, nodes, outside)


def hierarchical_all_gather_seconds(
    message_bytes: FloatArray, per_node: int, nodes: int, inside: Medium, outside: Medium
) -> FloatArray:
    """Across by rails, then inside."""
    across = ring_all_gather_seconds(message_bytes / per_node, nodes, outside)
    return across + ring_all_gather_seconds(message_bytes, per_node, inside)


def hierarchical_reduce_scatter_seconds(
    message_bytes: FloatArray, per_node: int, nodes: int, inside: Medium, outside: Medium
) -> FloatArray:
    """Inside, then across by rails."""
    across = ring_reduce_scatter_seconds(message_bytes / per_node, nodes, outside)
    return across + ring_reduce_scatter_seconds(message_bytes, per_node, inside)


def flat_ring(per_node: int, nodes: int, inside: Medium, outside: Medium) -> Medium:
    """What one ring through all members of all nodes goes over."""
    share = (nodes - 1) / (per_node * nodes - 1)
    return replace(
        inside,
        bytes_per_second=min(inside.bytes_per_second, per_node * outside.bytes_per_second),
        startup_seconds=max(inside.startup_seconds, outside.startup_seconds),
        bulk_startup_seconds=max(inside.bulk_startup_seconds, outside.bulk_startup_seconds),
        step_seconds=share * outside.step_seconds + (1 - share) * inside.step_seconds,
        bulk_step_seconds=share * outside.bulk_step_seconds + (1 - share) * inside.bulk_step_seconds,
        low_latency_share=min(inside.low_latency_share, outside.low_latency_share),
        saturation_bytes=max(inside.saturation_bytes, outside.saturation_bytes),
        in_switch_bytes_per_second=0.0,
    )
