"""All-to-all: every member has a part of n/p bytes for every other, and keeps one.

All pairs talk at once, so there are no steps, only p-1 peers: W = (p-1)/p · n/B + n/p / C. Across nodes the
members of a node send (p-k)/p of their k messages through the node's network cards, while the rest stays on
the links inside: the longer of the two counts.
"""

from __future__ import annotations

import numpy as np

from foretrain.prediction.collectives._base import FloatArray
from foretrain.prediction.collectives.medium import Medium, handed_over_seconds


def direct_all_to_all_seconds(message_bytes: FloatArray, members: int, medium: Medium) -> FloatArray:
    """All pairs of members at once."""
    wire = (members - 1) / members / medium.peer_bytes_per_second
    own = 1 / members / medium.peer_copy_bytes_per_second
    return handed_over_seconds(message_bytes * (wire + own), members - 1, medium)


def two_tier_all_to_all_seconds(
    message_bytes: FloatArray, members: int, per_node: int, inside: Medium | None, outside: Medium
) -> FloatArray:
    """All pairs at once; `outside` has the rate one member gets of its node's network."""
    away = members - per_node
    network = handed_over_seconds(
        message_bytes * (away / members / outside.peer_bytes_per_second), away, outside
    )
    if inside is None or per_node == 1:
        return network
    stays = message_bytes * (per_node / members)
    longer: FloatArray = np.maximum(network, direct_all_to_all_seconds(stays, per_node, inside))
    return longer
