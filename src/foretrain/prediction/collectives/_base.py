"""What is communicated: a verb, a message, and the group of devices that takes part."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from foretrain.errors import InvalidRequest
from foretrain.prediction.operators.listing import Floats

FloatArray = Floats


class Verb(StrEnum):
    """What a group does with a message.

    `bytes` of a collective is always the whole tensor: what every member holds after an all-gather, before a
    reduce-scatter, and hands out in an all-to-all. In a push or a pull one member is the server, and every
    other member moves the whole message to or from it.
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
    """`size` devices, `per_node` of them on each node; `concurrent` groups alike share a node's links."""

    size: int
    per_node: int
    concurrent: int = 1

    def __post_init__(self) -> None:
        if min(self.size, self.per_node, self.concurrent) < 1:
            raise InvalidRequest(
                f"a group needs at least one member, one of them on a node, and counts itself: got size "
                f"{self.size}, {self.per_node} on a node, {self.concurrent} at the same time"
            )
        if self.per_node > self.size:
            raise InvalidRequest(f"a group of {self.size} cannot have {self.per_node} members on one node")

    @property
    def nodes(self) -> int:
        """Nodes it spans; the last may hold fewer members."""
        return -(-self.size // self.per_node)


@dataclass(frozen=True, slots=True)
class Collective:
    """One communication: `bytes` is the whole message, see `Verb`."""

    verb: Verb
    bytes: float
    group: Group


@dataclass(frozen=True, slots=True)
class CollectiveCost:
    """Seconds, how they come about, and the quantiles of measured / predicted."""

    seconds: float
    algorithm: str
    tier: str
    p10: float
    p90: float
    source: str
