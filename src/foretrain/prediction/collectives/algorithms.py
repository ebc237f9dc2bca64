"""Collective algorithms: how many messages of which size each takes, one function per published algorithm.

Rings: every member passes pieces to its neighbour until all have been everywhere.

Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations" (2009):

    all-reduce       2(p-1) steps,  W = 2(p-1)/p · n/B
    all-gather        (p-1) steps,  W =  (p-1)/p · n/B
    reduce-scatter    (p-1) steps,  W =  (p-1)/p · n/B

To W comes the copy of a member's own piece inside its memory, n/p bytes: with few members it shows.

Double binary trees: half of the message up and down one tree, half another, where leaves and nodes swap.

Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan" (2009), as in
NCCL: about 2 log2(p) steps instead of 2(p-1). A member passes half a message to its parent twice and to two
children once, so

    W = 2 n/B

A tree therefore beats a ring on latency, and loses to it by (p-1)/p on bandwidth.

Sums made in the switch (NVLink SHARP, third generation of NVSwitch and later).

Members send the message once and read the sum once, both directions at the same time: W = n / S, where S is
the rate at which the switch sums. Measured on eight devices only: with four, NCCL stays with rings.

Two tiers: links inside a node, network cards between nodes. k members on a node, m nodes, p = k·m.

    all-reduce       reduce-scatter inside, all-reduce of n/k by each member across, all-gather inside
    all-gather       gather of each member's rail across (n/k bytes), then inside
    reduce-scatter   inside, then each member's rail across

The network sees 2(m-1)/m · n/k bytes of each member, on all rails at once: `outside` has the rate that one
member gets of its node's cards. A flat ring through all p members is often as good, and is tried too: it
enters and leaves each node once a channel, so B is the least of the link and the node's network together, and
of its steps 2(m-1) go across.

Broadcasts: from one member to all others.

With k members, N bytes, S pieces (seed of the project; Worringen, "Pipelining and overlapping for MPI
collective operations", 2003, for the best S):

    chain        (k-1) (α + N/B)
    pipelined    (S+k-2) (α + N/(S·B)),  least at S = √((k-2) N / (α B)); without α it is N (S+k-2) / (S B)
    tree         ⌈log2 k⌉ (α + N/B)

Reductions to one member: a broadcast run backwards, each hop adding its part on the way.

All-to-all: every member has a part of n/p bytes for every other, and keeps one.

All pairs talk at once, so there are no steps, only p-1 peers: W = (p-1)/p · n/B + n/p / C. Across nodes the
members of a node send (p-k)/p of their k messages through the node's network cards, while the rest stays on
the links inside: the longer of the two counts.

One member sends, one receives: t = startup + α + n/B, in the quicker protocol.

Parameter servers: n workers push their gradients into, or pull parameters out of, a server's one link.

    push = pull = α + n · N / B        (the seed's S / (B/n))

With several servers each holds a part: call it with the part's bytes, for the servers work side by side.
Workers on the server's own node use its links inside; those elsewhere share its network cards.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from foretrain.prediction.collectives._base import FloatArray
from foretrain.prediction.collectives.medium import Medium, carried_seconds, handed_over_seconds


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


def tree_all_reduce_seconds(message_bytes: FloatArray, members: int, medium: Medium) -> FloatArray:
    """Sum of all, at all, up and down two trees."""
    steps = 2 * math.ceil(math.log2(members))
    return carried_seconds(message_bytes * (2 / medium.bytes_per_second), steps, medium)


MEMBERS = 8
_STEPS = 2


def can_sum(members: int, medium: Medium) -> bool:
    """Whether the switch does the sum for so many members."""
    return medium.in_switch_bytes_per_second > 0 and members >= MEMBERS


def in_switch_all_reduce_seconds(message_bytes: FloatArray, members: int, medium: Medium) -> FloatArray:
    """Sum of all, at all, made by the switch. Starting it takes as long as a ring's steps."""
    steps = _STEPS * (members - 1)
    return carried_seconds(message_bytes / medium.in_switch_bytes_per_second, steps, medium)


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


def chain_reduce_seconds(message_bytes: FloatArray, members: int, medium: Medium) -> FloatArray:
    """(k-1) (α + N/B), summing along a chain."""
    return chain_broadcast_seconds(message_bytes, members, medium)


def pipelined_reduce_seconds(message_bytes: FloatArray, members: int, medium: Medium) -> FloatArray:
    """(S+k-2) (α + N/(S·B)), summing pieces along a chain."""
    return pipelined_broadcast_seconds(message_bytes, members, medium)


def tree_reduce_seconds(message_bytes: FloatArray, members: int, medium: Medium) -> FloatArray:
    """⌈log2 k⌉ (α + N/B), summing in pairs."""
    return tree_broadcast_seconds(message_bytes, members, medium)


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


def send_seconds(message_bytes: FloatArray, medium: Medium) -> FloatArray:
    """From one device to another."""
    return handed_over_seconds(message_bytes / medium.peer_bytes_per_second, 1, medium)


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
