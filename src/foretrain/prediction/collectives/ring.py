"""Rings: every member passes pieces to its neighbour until all have been everywhere.

Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations" (2009):

    all-reduce       2(p-1) steps,  W = 2(p-1)/p · n/B
    all-gather        (p-1) steps,  W =  (p-1)/p · n/B
    reduce-scatter    (p-1) steps,  W =  (p-1)/p · n/B

To W comes the copy of a member's own piece inside its memory, n/p bytes: with few members it shows.
"""

from __future__ import annotations

from foretrain.prediction.collectives._base import FloatArray
from foretrain.prediction.collectives.medium import Medium, carried_seconds


def ring_all_reduce_seconds(message_bytes: FloatArray, members: int, medium: Medium) -> FloatArray:
    """Sum of all, at all: a reduce-scatter and an all-gather."""
    return _ring(message_bytes, members, 2, medium)


def ring_all_gather_seconds(message_bytes: FloatArray, members: int, medium: Medium) -> FloatArray:
    """All parts, at all."""
    return _ring(message_bytes, members, 1, medium)


def ring_reduce_scatter_seconds(message_bytes: FloatArray, members: int, medium: Medium) -> FloatArray:
    """The sum of all, a part at each."""
    return _ring(message_bytes, members, 1, medium)


def _ring(message_bytes: FloatArray, members: int, rounds: int, medium: Medium) -> FloatArray:
    wire = rounds * (members - 1) / members / medium.bytes_per_second
    own = 1 / members / medium.copy_bytes_per_second
    return carried_seconds(message_bytes * (wire + own), rounds * (members - 1), medium)
