"""A communication: a verb, a message, and the group of devices that takes part."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

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
