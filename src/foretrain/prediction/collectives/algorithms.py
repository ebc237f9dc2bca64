"""Collective algorithms: one function per published algorithm, from message size and members to seconds.

p members, n bytes, B bytes/s, latency α per step; W is the time that the links are busy.

**Protocols.** Libraries such as NCCL send small messages in a low-latency protocol, in which flags take a
part of the bandwidth, and large messages in bulk, in pieces that fill a pipeline. A message that keeps the
links (and the copy of a member's own part) busy for W seconds, in `steps` steps, takes

    low latency    t = startup + steps·α + W / η
    bulk           t = startup + startup_b + steps·(α + α_b) + W + 2 √(W · n0 / B)

and the library uses the faster protocol. The root is the cost of filling and draining the pipeline with the
best size of pieces (see broadcasts): n0 / B is the time of a piece of n0 bytes. It was not observed on meshes
of single links. Both times are at least W and grow with it.

**Rings.** Every member passes parts to its neighbour. P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce
algorithms for clusters of workstations", 2009:

    all-reduce       2(p-1) steps,  W = 2(p-1)/p · n/B
    all-gather        (p-1) steps,  W =  (p-1)/p · n/B
    reduce-scatter    (p-1) steps,  W =  (p-1)/p · n/B

W includes the copy of a member's own part in its memory, n/p bytes, which matters with few members.

**Double binary trees.** Half of the message uses one tree, half another in which leaves and inner nodes are
swapped. P. Sanders, J. Speck, J. Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and
scan", 2009, as in NCCL: about 2 log2(p) steps instead of 2(p-1). A member sends half a message to its parent
twice and to two children once, so W = 2 n/B: lower latency than a ring, lower bandwidth by (p-1)/p.

**Sums in the switch** (NVLink SHARP, third generation of NVSwitch and later). Members send the message once
and read the sum once, both directions at the same time: W = n / S with the rate S of sums in the switch.
Measured on eight devices only; with four, NCCL uses rings.

**Two tiers.** Links inside a node, network cards between nodes; k members on a node, m nodes, p = k·m.

    all-reduce       reduce-scatter inside, all-reduce of n/k by each member between nodes, all-gather inside
    all-gather       gather of n/k bytes by each member between nodes, then inside
    reduce-scatter   inside, then by each member between nodes

The network carries 2(m-1)/m · n/k bytes of each member, all members at once: the rate of `outside` is that of
one member. A flat ring through all p members is an alternative: it enters and leaves each node once per
channel, so B is the minimum of the link and the network of the node, and 2(m-1) of its steps are between
nodes.

**Broadcasts** of N bytes to k members in S pieces (J. Worringen, "Pipelining and overlapping for MPI
collective operations", 2003, for the best S):

    chain        (k-1) (α + N/B)
    pipelined    (S+k-2) (α + N/(S·B)),  least at S = √((k-2) N / (α B)); without α it is N (S+k-2) / (S B)
    tree         ⌈log2 k⌉ (α + N/B)

**Reductions** to one member are reversed broadcasts, with a sum at each hop.

**All-to-all.** Every member has n/p bytes for every other member. All pairs exchange at once, without steps:
W = (p-1)/p · n/B + n/p / C. Between nodes, the members of a node send (p-k)/p of their k messages through the
network cards, the rest over the links inside; the longer of the two counts.

**Send.** t = startup + α + n/B, in the faster protocol.

**Parameter servers.** w workers push gradients of N bytes to, or pull parameters from, one link of a server:
push = pull = α + w · N / B. With several servers, use the bytes of each one's part; they work in parallel.
Workers on the server's node use the links inside it, others share its network cards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from foretrain.prediction.operators.pricing import Floats


@dataclass(frozen=True, slots=True)
class Medium:
    """Rates of one member in one direction while all members are active; `peer` rates are for pairs.

    `in_switch_bytes_per_second` is the rate at which a switch sums the messages of all members; 0 without
    such sums.
    """

    bytes_per_second: float
    copy_bytes_per_second: float
    startup_seconds: float
    step_seconds: float
    low_latency_share: float
    bulk_startup_seconds: float
    bulk_step_seconds: float
    saturation_bytes: float
    peer_bytes_per_second: float
    peer_copy_bytes_per_second: float
    peer_startup_seconds: float
    peer_step_seconds: float
    in_switch_bytes_per_second: float = 0.0


def carried_seconds(work_seconds: Floats, steps: float, medium: Medium) -> Floats:
    """Time of a collective that keeps the links busy for `work_seconds`, in the faster protocol."""
    start = medium.startup_seconds + steps * medium.step_seconds
    return _by_protocol(work_seconds, start, medium.bulk_step_seconds * steps, medium)


def handed_over_seconds(work_seconds: Floats, peers: float, medium: Medium) -> Floats:
    """Time of an exchange in pairs, all pairs at once; each peer adds latency."""
    start = medium.peer_startup_seconds + peers * medium.peer_step_seconds
    return _by_protocol(work_seconds, start, 0.0, medium)


def _by_protocol(work: Floats, start: float, bulk_steps: float, medium: Medium) -> Floats:
    """The two equations of the module, with as few array operations as possible."""
    low_latency = work / medium.low_latency_share
    bulk = work + (medium.bulk_startup_seconds + bulk_steps)
    if medium.saturation_bytes > 0:
        bulk += np.sqrt(work * (4 * medium.saturation_bytes / medium.bytes_per_second))
    faster: Floats = np.minimum(low_latency, bulk) + start
    return faster


def ring_all_reduce_seconds(message_bytes: Floats, members: int, medium: Medium) -> Floats:
    """The sum on all members: a reduce-scatter and an all-gather."""
    return _ring(message_bytes, members, 2, medium)


def ring_gather_seconds(message_bytes: Floats, members: int, medium: Medium) -> Floats:
    """All parts on all members; or, in reverse, the sum with a part on each (reduce-scatter)."""
    return _ring(message_bytes, members, 1, medium)


def _ring(message_bytes: Floats, members: int, rounds: int, medium: Medium) -> Floats:
    wire = rounds * (members - 1) / members / medium.bytes_per_second
    own = 1 / members / medium.copy_bytes_per_second
    return carried_seconds(message_bytes * (wire + own), rounds * (members - 1), medium)


def tree_all_reduce_seconds(message_bytes: Floats, members: int, medium: Medium) -> Floats:
    """The sum on all members, by two trees."""
    steps = 2 * math.ceil(math.log2(members))
    return carried_seconds(message_bytes * (2 / medium.bytes_per_second), steps, medium)


MEMBERS = 8
_STEPS = 2


def can_sum(members: int, medium: Medium) -> bool:
    """Whether the switch computes sums for this number of members."""
    return medium.in_switch_bytes_per_second > 0 and members >= MEMBERS


def in_switch_all_reduce_seconds(message_bytes: Floats, members: int, medium: Medium) -> Floats:
    """The sum on all members, computed by the switch; its latency is that of a ring's steps."""
    steps = _STEPS * (members - 1)
    return carried_seconds(message_bytes / medium.in_switch_bytes_per_second, steps, medium)


def inside_all_reduce_seconds(message_bytes: Floats, per_node: int, inside: Medium) -> Floats:
    """The part inside a node: a reduce-scatter before and an all-gather after, of equal time."""
    return 2 * ring_gather_seconds(message_bytes, per_node, inside)


def across_all_reduce_seconds(message_bytes: Floats, per_node: int, nodes: int, outside: Medium) -> Floats:
    """The part between nodes: all members at once, by ring or by trees, whichever is faster."""
    rail = message_bytes / per_node
    faster: Floats = np.minimum(
        ring_all_reduce_seconds(rail, nodes, outside), tree_all_reduce_seconds(rail, nodes, outside)
    )
    return faster


def hierarchical_all_reduce_seconds(
    message_bytes: Floats, per_node: int, nodes: int, inside: Medium, outside: Medium
) -> Floats:
    """Inside, between nodes, inside."""
    around = inside_all_reduce_seconds(message_bytes, per_node, inside)
    return around + across_all_reduce_seconds(message_bytes, per_node, nodes, outside)


def hierarchical_gather_seconds(
    message_bytes: Floats, per_node: int, nodes: int, inside: Medium, outside: Medium
) -> Floats:
    """An all-gather between nodes, then inside; a reduce-scatter is its reverse."""
    across = ring_gather_seconds(message_bytes / per_node, nodes, outside)
    return across + ring_gather_seconds(message_bytes, per_node, inside)


def flat_ring(per_node: int, nodes: int, inside: Medium, outside: Medium) -> Medium:
    """The medium of one ring through all members of all nodes."""
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


def chain_broadcast_seconds(message_bytes: Floats, members: int, medium: Medium) -> Floats:
    """The whole message from each member to the next."""
    hop = medium.step_seconds + message_bytes / medium.bytes_per_second
    return medium.startup_seconds + (members - 1) * hop


def pipelined_broadcast_seconds(
    message_bytes: Floats, members: int, medium: Medium, pieces: float | None = None
) -> Floats:
    """In `pieces` along the chain; by default in the best number of pieces."""
    count = best_pieces(message_bytes, members, medium) if pieces is None else np.float64(pieces)
    piece = medium.step_seconds + message_bytes / (count * medium.bytes_per_second)
    seconds: Floats = medium.startup_seconds + (count + members - 2) * piece
    return seconds


def tree_broadcast_seconds(message_bytes: Floats, members: int, medium: Medium) -> Floats:
    """In each round every member that has the message sends it to one that has not."""
    hop = medium.step_seconds + message_bytes / medium.bytes_per_second
    return medium.startup_seconds + math.ceil(math.log2(members)) * hop


def best_pieces(message_bytes: Floats, members: int, medium: Medium) -> Floats:
    """The number of pieces that minimises the time of the pipelined chain, at least 1."""
    step_bytes = medium.step_seconds * medium.bytes_per_second
    best: Floats = np.maximum(1.0, np.sqrt((members - 2) * message_bytes / step_bytes))
    return best


def direct_all_to_all_seconds(message_bytes: Floats, members: int, medium: Medium) -> Floats:
    """All pairs of members at once."""
    wire = (members - 1) / members / medium.peer_bytes_per_second
    own = 1 / members / medium.peer_copy_bytes_per_second
    return handed_over_seconds(message_bytes * (wire + own), members - 1, medium)


def two_tier_all_to_all_seconds(
    message_bytes: Floats, members: int, per_node: int, inside: Medium | None, outside: Medium
) -> Floats:
    """All pairs at once; the rate of `outside` is that of one member."""
    away = members - per_node
    network = handed_over_seconds(
        message_bytes * (away / members / outside.peer_bytes_per_second), away, outside
    )
    if inside is None or per_node == 1:
        return network
    local = message_bytes * (per_node / members)
    longer: Floats = np.maximum(network, direct_all_to_all_seconds(local, per_node, inside))
    return longer


def send_seconds(message_bytes: Floats, medium: Medium) -> Floats:
    """From one device to another."""
    return handed_over_seconds(message_bytes / medium.peer_bytes_per_second, 1, medium)


def shared_link_seconds(message_bytes: Floats, workers: int, medium: Medium) -> Floats:
    """The messages of all workers over one link."""
    return handed_over_seconds(message_bytes * (workers / medium.peer_bytes_per_second), workers, medium)


def two_tier_server_seconds(
    message_bytes: Floats, here: int, away: int, inside: Medium | None, outside: Medium
) -> Floats:
    """`here` workers on the server's node and `away` on others exchange at once; the longer time counts."""
    network = shared_link_seconds(message_bytes, away, outside)
    if inside is None or here == 0:
        return network
    longer: Floats = np.maximum(network, shared_link_seconds(message_bytes, here, inside))
    return longer
