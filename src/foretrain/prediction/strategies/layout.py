"""The layout of a step over devices: the degree of every axis, and options of the strategies.

Strategies parse their own texts (`catalogue.layout_of`); this module holds what their parsers share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from foretrain.errors import InvalidRequest
from foretrain.prediction.strategies.program import Axis

DATA_PARALLEL = "ddp"
"""The strategy between replicas that hold all state, if a layout names no other."""
SHARDED = "zero"
"""The strategy between replicas of a layout with a stage of ZeRO, if it names no other."""


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """Parameter servers: variant, number `k` of gradients they wait for, and number of servers."""

    variant: str
    k: int
    servers: int


class Variant(StrEnum):
    """Which gradients a server waits for, and whether the other workers continue."""

    SYNC = "sync"
    ASYNC = "async"
    K_SYNC = "ksync"
    K_BATCH_SYNC = "kbatchsync"
    K_ASYNC = "kasync"
    K_BATCH_ASYNC = "kbatchasync"


@dataclass(frozen=True)
class PsUpdate:
    """An average update of the parameters.

    `waiting_seconds` is the wait for the workers, `exchange_seconds` the additional time of messages,
    aggregation and overhead. `standard_error` is that of the simulation; 0 without one.
    """

    variant: Variant
    workers: int
    k: int
    waiting_seconds: float
    exchange_seconds: float
    gradients_per_update: int
    expected_staleness: float
    useful_share: float
    """Share of the workers' time spent on gradients that are used; the rest is waits and discarded work."""
    standard_error: float = 0.0

    @property
    def seconds_per_update(self) -> float:
        """Time between two updates."""
        return self.waiting_seconds + self.exchange_seconds

    @property
    def gradients_per_second(self) -> float:
        """Gradients used per second; multiply by the batch of a worker for samples per second."""
        return self.gradients_per_update / self.seconds_per_update


@dataclass(frozen=True)
class Layout:
    """The degree of every axis, and options of the strategies.

    `replication` names the strategy that defines the exchanges between replicas: by default `zero` with a
    `zero_stage`, else `ddp`. `data` counts replicas that share no state, `shard` those that share it under
    ZeRO or FSDP. `assumes_sequence_parallel`: it was not asked for, and is left out where the framework or
    the model has none. `tensor_overlap`: whether exchanges of divided layers run beside their own products,
    "yes", "no" or as the framework has it. `stage_layers` are the layers of every part of a pipeline, by
    default as many for each, or balanced by their time with `balances_stages`. `options` are further settings
    of a strategy.
    """

    name: str
    tensor: int = 1
    context: int = 1
    expert: int = 1
    shard: int = 1
    data: int = 1
    pipeline: int = 1
    replication: str = ""
    zero_stage: int = 0
    sequence_parallel: bool = False
    assumes_sequence_parallel: bool = False
    keeps_gathered: bool = False
    tensor_overlap: str = ""
    overlaps: bool = True
    schedule: str = "1f1b"
    chunks: int = 1
    stage_layers: tuple[int, ...] = ()
    balances_stages: bool = False
    compression: str | None = None
    servers: ServerPlan | None = None
    options: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not self.replication:
            object.__setattr__(self, "replication", SHARDED if self.zero_stage else DATA_PARALLEL)

    @property
    def degrees(self) -> Mapping[Axis, int]:
        """Degrees by axis."""
        return {
            Axis.TENSOR: self.tensor,
            Axis.CONTEXT: self.context,
            Axis.EXPERT: self.expert,
            Axis.SHARD: self.shard,
            Axis.DATA: self.data,
            Axis.PIPELINE: self.pipeline,
        }

    @property
    def devices(self) -> int:
        """Number of devices."""
        return math.prod(self.degrees.values())

    @property
    def model_degree(self) -> int:
        """Devices that together hold one copy of the model."""
        return self.tensor * self.context * self.pipeline

    @property
    def replicas(self) -> int:
        """Number of devices, or groups of devices, with their own samples."""
        return self.expert * self.shard * self.data

    @property
    def contributions(self) -> int:
        """Replicas with gradients in each update: all, unless servers wait for fewer."""
        return self.replicas if self.servers is None else self.servers.k


def whole_number(name: str, value: str) -> int:
    """A degree from its text."""
    if not (value.isascii() and value.isdigit()) or int(value) < 1:
        raise InvalidRequest(f"{name}={value or '...'} must be a whole number of at least 1")
    return int(value)


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    """A value from a fixed list."""
    if value not in allowed:
        forms = ", ".join(f"{name}={each}" if each else name for each in allowed)
        raise InvalidRequest(f"{name}={value} is not one of {forms}")
    return value


def divisors(number: int) -> str:
    """The divisors of a number, separated by commas."""
    return ", ".join(str(each) for each in range(1, number + 1) if number % each == 0)
