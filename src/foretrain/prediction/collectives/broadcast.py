"""Broadcasts: from one member to all others.

With k members, N bytes, S pieces (seed of the project; Worringen, "Pipelining and overlapping for MPI
collective operations", 2003, for the best S):

    chain        (k-1) (α + N/B)
    pipelined    (S+k-2) (α + N/(S·B)),  least at S = √((k-2) N / (α B)); without α it is N (S+k-2) / (S B)
    tree         ⌈log2 k⌉ (α + N/B)
"""

from __future__ import annotations

import math

import numpy as np

from foretrain.prediction.collectives._base import FloatArray
from foretrain.prediction.collectives.medium import Medium


def chain_broadcast_seconds(message_bytes: FloatArray, members: int, medium: Medium) -> FloatArray:
    """The whole message from one to the next."""
    hop = medium.step_seconds + message_bytes / medium.bytes_per_second
    return medium.startup_seconds + (members - 1) * hop


def pipelined_broadcast_seconds(
    message_bytes: FloatArray, members: int, medium: Medium, pieces: float | None = None
) -> FloatArray:
    """In pieces along the chain; in the best number of pieces unless told."""
    chosen = best_pieces(message_bytes, members, medium) if pieces is None else np.float64(pieces)
    piece = medium.step_seconds + message_bytes / (chosen * medium.bytes_per_second)
    told: FloatArray = medium.startup_seconds + (chosen + members - 2) * piece
    return told


def tree_broadcast_seconds(message_bytes: FloatArray, members: int, medium: Medium) -> FloatArray:
    """In each round everyone who has it passes it to one who has not."""
    hop = medium.step_seconds + message_bytes / medium.bytes_per_second
    return medium.startup_seconds + math.ceil(math.log2(members)) * hop


def best_pieces(message_bytes: FloatArray, members: int, medium: Medium) -> FloatArray:
    """The number of pieces that makes the pipelined chain shortest, at least 1."""
    step_bytes = medium.step_seconds * medium.bytes_per_second
    best: FloatArray = np.maximum(1.0, np.sqrt((members - 2) * message_bytes / step_bytes))
    return best
