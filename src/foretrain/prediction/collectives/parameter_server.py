"""Parameter servers: n workers push their gradients into, or pull parameters out of, a server's one link.

    push = pull = α + n · N / B        (the seed's S / (B/n))

With several servers each holds a part: call it with the part's bytes, for the servers work side by side.
Workers on the server's own node use its links inside; those elsewhere share its network cards.
"""

from __future__ import annotations

import numpy as np

from foretrain.prediction.collectives._base import FloatArray
from foretrain.prediction.collectives.medium import Medium, handed_over_seconds


def shared_link_seconds(message_bytes: FloatArray, workers: int, medium: Medium) -> FloatArray:
    """All workers' messages through one link."""
    return handed_over_seconds(message_bytes * (workers / medium.peer_bytes_per_second), workers, medium)


def two_tier_server_seconds(
    message_bytes: FloatArray, here: int, away: int, inside: Medium | None, outside: Medium
) -> FloatArray:
    """`here` workers beside the server, `away` on other nodes; both ways at once, the longer counts."""
    network = shared_link_seconds(message_bytes, away, outside)
    if inside is None or here == 0:
        return network
    longer: FloatArray = np.maximum(network, shared_link_seconds(message_bytes, here, inside))
    return longer
