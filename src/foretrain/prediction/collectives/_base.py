"""A communication: a verb, a message, and the group of devices that takes part.

The medium of a group: achieved rates and latencies, and the time of messages over it.

Libraries such as NCCL send small messages in a low-latency protocol, in which flags take a part of the
bandwidth, and large messages in bulk, in pieces that fill a pipeline. A message that keeps the links (and the
copy of a member's own part) busy for W seconds, in `steps` steps, takes

    low latency    t = startup + steps·α + W / η
    bulk           t = startup + startup_b + steps·(α + α_b) + W + 2 √(W · n0 / B)

and the library uses the faster protocol. The root is the cost of filling and draining the pipeline with the
best size of pieces (see broadcasts in `algorithms`): n0 / B is the time of a piece of n0 bytes. It was not
observed on meshes of single links. Both times are at least W and grow with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from foretrain.errors import InvalidRequest
from foretrain.prediction.operators.listing import Floats

FloatArray = Floats


class Verb(StrEnum):
    """The kind of a collective.

    `bytes` of a collective is always the whole tensor: what every member holds after an all-gather, before a
    reduce-scatter, and sends in an all-to-all. In a push or a pull one member is the server, and every other
    member moves the whole message to or from it.
    """

    BROADCAST = "broadcast"
    REDUCE = "reduce"
    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_TO_ALL = "all-to-all"
    SEND = "send"
    PUSH = "push"
    PULL = "pull"


@dataclass(frozen=True, slots=True)
class Group:
    """`size` devices, `per_node` of them on each node; `concurrent` such groups share the links of a node."""

    size: int
    per_node: int
    concurrent: int = 1

    def __post_init__(self) -> None:
        if min(self.size, self.per_node, self.concurrent) < 1:
            raise InvalidRequest(
                f"size, per_node and concurrent of a group must be at least 1, got {self.size}, "
                f"{self.per_node} and {self.concurrent}"
            )
        if self.per_node > self.size:
            raise InvalidRequest(f"a group of {self.size} cannot have {self.per_node} members on one node")

    @property
    def nodes(self) -> int:
        """Number of nodes; the last may hold fewer members."""
        return -(-self.size // self.per_node)


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective of a group; `bytes` is the whole message, see `Verb`."""

    verb: Verb
    bytes: float
    group: Group


@dataclass(frozen=True, slots=True)
class CollectiveCost:
    """Seconds, the algorithm and the slowest tier, and quantiles of measured / predicted."""

    seconds: float
    algorithm: str
    tier: str
    p10: float
    p90: float
    source: str


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


def carried_seconds(work_seconds: FloatArray, steps: float, medium: Medium) -> FloatArray:
    """Time of a collective that keeps the links busy for `work_seconds`, in the faster protocol."""
    start = medium.startup_seconds + steps * medium.step_seconds
    return _by_protocol(work_seconds, start, medium.bulk_step_seconds * steps, medium)


def handed_over_seconds(work_seconds: FloatArray, peers: float, medium: Medium) -> FloatArray:
    """Time of an exchange in pairs, all pairs at once; each peer adds latency."""
    start = medium.peer_startup_seconds + peers * medium.peer_step_seconds
    return _by_protocol(work_seconds, start, 0.0, medium)


def _by_protocol(work: FloatArray, start: float, bulk_steps: float, medium: Medium) -> FloatArray:
    """The two equations of the module, with as few array operations as possible."""
    low_latency = work / medium.low_latency_share
    bulk = work + (medium.bulk_startup_seconds + bulk_steps)
    if medium.saturation_bytes > 0:
        bulk += np.sqrt(work * (4 * medium.saturation_bytes / medium.bytes_per_second))
    faster: FloatArray = np.minimum(low_latency, bulk) + start
    return faster
