"""Double binary trees: half of the message up and down one tree, half another, where leaves and nodes swap.

Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan" (2009), as in
NCCL: about 2 log2(p) steps instead of 2(p-1). A member passes half a message to its parent twice and to two
children once, so

    W = 2 n/B

A tree therefore beats a ring on latency, and loses to it by (p-1)/p on bandwidth.
"""

from __future__ import annotations

import math

from foretrain.prediction.collectives._base import FloatArray
from foretrain.prediction.collectives.medium import Medium, carried_seconds


def tree_all_reduce_seconds(message_bytes: FloatArray, members: int, medium: Medium) -> FloatArray:
    """Sum of all, at all, up and down two trees."""
    steps = 2 * math.ceil(math.log2(members))
    return carried_seconds(message_bytes * (2 / medium.bytes_per_second), steps, medium)
