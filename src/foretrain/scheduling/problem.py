"""The nouns of a scheduling problem: node types, the fleet they form, and the jobs to run on it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from foretrain.errors import InvalidRequest, UnknownName
from foretrain.estimates import Quantiles
from foretrain.units import HOUR


class Market(Enum):
    """How a node is paid for: on demand, as spot capacity that may be taken away, or owned."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"
    OWNED = "owned"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeType:
    """A kind of node: `gpus` devices of one kind at one price for the whole node.

    A node that is switched on is paid from then on, in units of `billing_seconds` and at least
    `minimum_seconds`; its jobs progress after `startup_seconds`. `interruptions_per_hour` is the expected
    rate at which a provider takes back a spot node.
    """

    name: str
    gpu: str
    gpus: int
    usd_per_hour: float
    market: Market = Market.ON_DEMAND
    startup_seconds: float = 0.0
    billing_seconds: float = 0.0
    minimum_seconds: float = 0.0
    interruptions_per_hour: float = 0.0

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise InvalidRequest(f"node type {self.name!r} has {self.gpus} GPUs; it needs at least 1")
        amounts = {
            "usd_per_hour": self.usd_per_hour,
            "startup_seconds": self.startup_seconds,
            "billing_seconds": self.billing_seconds,
            "minimum_seconds": self.minimum_seconds,
            "interruptions_per_hour": self.interruptions_per_hour,
        }
        for name, amount in amounts.items():
            if not (math.isfinite(amount) and amount >= 0):
                raise InvalidRequest(f"node type {self.name!r}: {name} is {amount}; it must be at least 0")

    @property
    def usd_per_second(self) -> float:
        """Price of the whole node."""
        return self.usd_per_hour / HOUR

    def billed_seconds(self, seconds: float) -> float:
        """What is paid of a node that was on for `seconds`: rounded up to whole billing units."""
        if self.billing_seconds > 0:
            units = math.ceil(seconds / self.billing_seconds - 1e-9)
            seconds = max(seconds, units * self.billing_seconds)
        return max(seconds, self.minimum_seconds)


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """`count` nodes; each of them, when switched on, takes one of the `types`.

    An elastic fleet is one group with every type to choose from; an owned cluster has a group for each kind
    of node, with that one type.
    """

    count: int
    types: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.count < 1 or not self.types:
            raise InvalidRequest(f"a group of {self.count} nodes of {len(self.types)} types is empty")


@dataclass(frozen=True)
class Fleet:
    """All nodes there can be: node types by name, and groups of nodes. Nodes are numbered group by group."""

    types: Mapping[str, NodeType]
    groups: tuple[NodeGroup, ...]

    def __post_init__(self) -> None:
        for group in self.groups:
            for name in group.types:
                if name not in self.types:
                    raise UnknownName("node type", name, self.types)
        object.__setattr__(self, "types", MappingProxyType(dict(self.types)))

    @property
    def nodes(self) -> int:
        """The most nodes that can be on at once."""
        return sum(group.count for group in self.groups)

    @property
    def most_gpus(self) -> int:
        """The most GPUs that can be on at once."""
        return sum(group.count * max(self.types[name].gpus for name in group.types) for group in self.groups)

    def group_of(self, node: int) -> int:
        """The group a node belongs to."""
        for index, group in enumerate(self.groups):
            if node < group.count:
                return index
            node -= group.count
        raise ValueError(f"there is no node {node} in {self.nodes}")

    def nodes_of(self, group: int) -> range:
        """The numbers of a group's nodes."""
        first = sum(each.count for each in self.groups[:group])
        return range(first, first + self.groups[group].count)

    def with_price(self, node_type: str, usd_per_hour: float) -> Fleet:
        """The same fleet after the price of one type changed."""
        from dataclasses import replace

        changed = replace(self.types[node_type], usd_per_hour=usd_per_hour)
        return Fleet({**self.types, node_type: changed}, self.groups)


@dataclass(frozen=True, slots=True, order=True)
class Configuration:
    """Where a job runs: `gpus` devices on each of `nodes` nodes of one type.

    A job on several nodes has them to itself.
    """

    node_type: str
    gpus: int
    nodes: int = 1

    def __str__(self) -> str:
        nodes = "" if self.nodes == 1 else f"{self.nodes} nodes of "
        return f"{nodes}{self.gpus} GPU{'' if self.gpus == 1 else 's'} on {self.node_type}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Switching:
    """What it costs to interrupt a job, in seconds without progress, and when it may be interrupted.

    Every start of a job, the first included, takes `start_seconds` (its process starts, data are loaded)
    before it progresses; they are not part of the job's `seconds`. A job that is stopped and started again
    also spends `checkpoint_seconds + restart_seconds`, and `migration_seconds` more if it starts on another
    node. It may not be stopped within `minimum_run_seconds` of a start, and never if it is not `movable`.
    After a failure, work since the last checkpoint, taken every `checkpoint_every_seconds` of progress (0:
    continuously), is lost.
    """

    start_seconds: float = 0.0
    checkpoint_seconds: float = 0.0
    restart_seconds: float = 0.0
    migration_seconds: float = 0.0
    minimum_run_seconds: float = 0.0
    checkpoint_every_seconds: float = 0.0
    movable: bool = True


@dataclass(frozen=True, kw_only=True)
class SubmittedJob:
    """One training job: when it was submitted, when it is due, and how long it takes on each configuration.

    `seconds` holds the predicted time of the whole job; `spread` the relative interval of that prediction
    (its p50 is 1). Lateness costs `weight_usd_per_second`. Higher `priority` first.
    """

    name: str
    submit_seconds: float
    deadline_seconds: float
    weight_usd_per_second: float
    seconds: Mapping[Configuration, float]
    priority: float = 0.0
    user: str = ""
    budget_usd: float = math.inf
    spread: Quantiles = field(default_factory=lambda: Quantiles(1.0, 1.0, 1.0))
    switching: Switching = field(default_factory=Switching)

    def __post_init__(self) -> None:
        for configuration, seconds in self.seconds.items():
            if not (math.isfinite(seconds) and seconds > 0):
                raise InvalidRequest(
                    f"job {self.name!r} takes {seconds} s on {configuration}; give seconds above 0"
                )

    def __hash__(self) -> int:
        """By name and submission, which distinguish jobs: `seconds` has no hash."""
        return hash((self.name, self.submit_seconds))

    @property
    def fastest_seconds(self) -> float:
        """The shortest time on any configuration."""
        return min(self.seconds.values(), default=math.inf)


@dataclass(frozen=True)
class Caps:
    """Most that may be spent: by each user, and by all in a month of 30 days (from time 0)."""

    user_usd: Mapping[str, float] = field(default_factory=dict)
    month_usd: float = math.inf


@dataclass(frozen=True)
class Problem:
    """Jobs in order of submission, the fleet, and caps on what is spent."""

    jobs: tuple[SubmittedJob, ...]
    fleet: Fleet
    caps: Caps = field(default_factory=Caps)

    def __post_init__(self) -> None:
        names = [job.name for job in self.jobs]
        repeated = sorted({name for name in names if names.count(name) > 1}) if _repeats(names) else []
        if repeated:
            raise InvalidRequest(f"job {repeated[0]!r} is listed more than once")
        ordered = tuple(sorted(self.jobs, key=lambda job: job.submit_seconds))
        object.__setattr__(self, "jobs", ordered)


def _repeats(names: list[str]) -> bool:
    return len(set(names)) < len(names)


def runnable(job: SubmittedJob, fleet: Fleet) -> tuple[Configuration, ...]:
    """The configurations of a job that exist in the fleet."""
    return tuple(each for each in job.seconds if exists(each, fleet))


def exists(configuration: Configuration, fleet: Fleet) -> bool:
    """Whether a fleet has the nodes of a configuration."""
    node_type = fleet.types.get(configuration.node_type)
    if node_type is None or configuration.gpus > node_type.gpus:
        return False
    if configuration.nodes > 1 and configuration.gpus != node_type.gpus:
        return False
    return any(
        configuration.node_type in group.types and configuration.nodes <= group.count
        for group in fleet.groups
    )


def elastic(types: Iterable[NodeType], max_nodes: int) -> Fleet:
    """A fleet of up to `max_nodes` nodes, each of any of the types."""
    by_name = {each.name: each for each in types}
    return Fleet(by_name, (NodeGroup(max_nodes, tuple(by_name)),))
