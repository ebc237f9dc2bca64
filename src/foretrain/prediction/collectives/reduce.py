"""Reductions to one member: a broadcast run backwards, each hop adding its part on the way."""

from __future__ import annotations

from foretrain.prediction.collectives._base import FloatArray
from foretrain.prediction.collectives.broadcast import (
    chain_broadcast_seconds,
    pipelined_broadcast_seconds,
    tree_broadcast_seconds,
)
from foretrain.prediction.collectives.medium import Medium


def chain_reduce_seconds(message_bytes: FloatArray, members: int, medium: Medium) -> FloatArray:
    """(k-1) (α + N/B), summing along a chain."""
    return chain_broadcast_seconds(message_bytes, members, medium)


def pipelined_reduce_seconds(message_bytes: FloatArray, members: int, medium: Medium) -> FloatArray:
    """(S+k-2) (α + N/(S·B)), summing pieces along a chain."""
    return pipelined_broadcast_seconds(message_bytes, members, medium)


def tree_reduce_seconds(message_bytes: FloatArray, members: int, medium: Medium) -> FloatArray:
    """⌈log2 k⌉ (α + N/B), summing in pairs."""
    return tree_broadcast_seconds(message_bytes, members, medium)
