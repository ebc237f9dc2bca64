"""The interface of a strategy, the registry of strategies, and the layout that a strategy text means.

Strategies compose. Tensor, context and expert parallelism divide layers (`divide`), pipeline parallelism cuts
the model into stages, and one strategy defines the exchanges between replicas (data parallelism, sharding,
parameter servers: `replicate`). A `Layout` holds the degrees of all; a strategy of degree 1 is not asked.
Help texts, search, plans, the buyer's guide and launch files use the registry, so that a new strategy is one
new file.

A single word selects a strategy that uses all devices (`ddp`, `fsdp`, `ps-sync`). A list gives degrees and
options, each read by the strategy that declares the key: `tp=4,pp=2,dp=8,zero=1`. `auto` runs the search.
"""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cache
from typing import TYPE_CHECKING, ClassVar

from foretrain.errors import InvalidRequest, nearest
from foretrain.prediction.collectives.costs import Verb
from foretrain.prediction.operators.pricing import Floats
from foretrain.prediction.strategies.program import (
    Axis,
    MemoryOptions,
    Program,
    compile_program,
    deepen_program,
)
from foretrain.registry import Registry, discover
from foretrain.workloads.depth import NotDerivable
from foretrain.workloads.executed import ExecutedGraph

if TYPE_CHECKING:
    from foretrain.prediction.cost_models import CallTimes
    from foretrain.prediction.stragglers import WorkerTimes


AUTO = "auto"
DATA_PARALLEL = "ddp"
"""The strategy between replicas that hold all state, if a layout names no other."""
SHARDED = "zero"
"""The strategy between replicas of a layout with a stage of ZeRO, if it names no other."""
ExchangeSeconds = Callable[[Verb, Floats, tuple[Axis, ...]], Floats]
"""Seconds of exchanges by verb, bytes and axes; messages are sent in buckets."""


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


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """Parameter servers: variant, number `k` of gradients they wait for, and number of servers."""

    variant: str
    k: int
    servers: int

    @property
    def is_asynchronous(self) -> bool:
        """Whether every worker updates the parameters alone, without waiting for others."""
        return self.variant == Variant.ASYNC


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


@dataclass(frozen=True, slots=True)
class Shards:
    """Devices that each kind of state is divided over; outside experts, `dense` times as many."""

    parameters: int = 1
    gradients: int = 1
    optimizer: int = 1
    dense: int = 1


class MixedPrecision(IntEnum):
    """How a framework trains in half precision; of several strategies the last one here decides.

    `AUTOCAST`: FP32 weights, cast in each call. `MASTER_WEIGHTS`: modules work in half precision on copies
    of FP32 weights that the optimizer holds, as FSDP's `MixedPrecision` and DeepSpeed's `bf16`.
    `FP32_GRADIENTS`: the same, and gradients are added up and reduced in FP32, as in Megatron.
    """

    AUTOCAST = 0
    MASTER_WEIGHTS = 1
    FP32_GRADIENTS = 2


class Strategy(ABC):
    """A strategy to parallelise a training step. Methods that are not overridden change nothing.

    `name` is its key in the registry, `words` are single words that select it, `keys` are its keys in a list
    of degrees, and `form` is how help texts show it. `launchers` are the launch targets that can start it,
    None for all of them. `plan_words` are the texts that `plan` compares. `has_jitter` is whether its devices
    wait for the slowest of them. `alone` is what `auto` calls layouts of this strategy that do not divide the
    model, by default its form. `is_single_process` is whether one process drives all devices.
    """

    name: ClassVar[str]
    words: ClassVar[tuple[str, ...]] = ()
    keys: ClassVar[tuple[str, ...]] = ()
    form: ClassVar[str]
    launchers: ClassVar[frozenset[str] | None] = None
    plan_words: ClassVar[tuple[str, ...]] = ()
    has_jitter: ClassVar[bool] = True
    alone: ClassVar[str | None] = None
    is_single_process: ClassVar[bool] = False
    axis: ClassVar[Axis | None] = None
    """The axis whose degree it divides the model by; in a layout of degree 1 it is not asked."""
    order: ClassVar[int] = 50
    """Strategies read keys and divide programs in ascending order."""

    def planned_as(self, text: str) -> str:
        """The text by which `plan` knows this strategy; several may mean the same."""
        return text

    def claims(self, text: str) -> bool:
        """Whether a text that is not a list of degrees selects this strategy."""
        return text in self.words

    def parse(self, text: str, devices: int, devices_per_node: int) -> Layout:
        """The layout of a text that this strategy claims."""
        del devices, devices_per_node
        raise InvalidRequest(f"strategy {text!r} does not define a layout on its own; write {self.form}")

    def replicates(self, given: Mapping[str, str]) -> bool:
        """Whether a list of degrees has this strategy between its replicas, not plain data parallelism."""
        del given
        return False

    def read(self, given: Mapping[str, str], layout: Layout) -> Layout:
        """The layout with the keys of this strategy; `layout.data` holds the devices not yet assigned."""
        del given
        return layout

    def divide(self, program: Program, layout: Layout) -> Program:
        """The program with layers divided between devices, before it is priced."""
        del layout
        return program

    def overlap(self, program: Program, layout: Layout) -> Program:
        """The program of fused kernels with the exchanges of its layers beside other calls."""
        del layout
        return program

    def replicate(self, program: Program, layout: Layout) -> Program:
        """A stage's program with the exchanges between its replicas."""
        del layout
        return program

    def call_times(self, times: CallTimes, program: Program, layout: Layout) -> CallTimes:
        """The times of calls; a strategy may change how they are launched."""
        del program, layout
        return times

    def update(self, layout: Layout, worker: WorkerTimes, message: float, updating: float) -> PsUpdate | None:
        """An update by parameter servers; None for strategies without servers."""
        del layout, worker, message, updating
        return None

    def shards(self, layout: Layout) -> Shards:
        """The devices that state is divided over."""
        del layout
        return Shards()

    def memory(self, options: MemoryOptions, program: Program, layout: Layout) -> MemoryOptions:
        """Memory options of the devices of a stage."""
        del program, layout
        return options

    def mixed_precision(self, layout: Layout) -> MixedPrecision:
        """How frameworks that implement this strategy usually train in half precision."""
        del layout
        return MixedPrecision.AUTOCAST

    def exposed_seconds(
        self,
        layout: Layout,
        sent_bytes: Floats,
        forward: Floats,
        backward: Floats,
        micro_batches: int,
        exchange: ExchangeSeconds,
    ) -> Floats:
        """Seconds that exchanges between replicas add to the step of each stage, in closed form.

        `sent_bytes` are the parameters or gradients of each stage in the precision they are sent in,
        `forward` and `backward` the seconds of its passes. The search and `plan` rank by this; what they
        report is predicted in full.
        """
        del layout, forward, backward, micro_batches, exchange
        return sent_bytes * 0.0

    def candidates(self, devices: int, devices_per_node: int) -> tuple[Layout, ...]:
        """Layouts that `auto` compares in addition to all combinations of degrees."""
        del devices, devices_per_node
        return ()

    def environment(self, layout: Layout) -> tuple[tuple[str, str, str], ...]:
        """Variables that a launched script reads: name without FORETRAIN_, value, purpose."""
        del layout
        return ()


_known: list[Strategy] = []


def strategies() -> Registry[Strategy]:
    """All strategies, in the order they read keys and divide programs."""
    if not _known:
        _known.extend(discover(__name__, Strategy))
    return _registry(tuple(_known))


@cache
def _registry(known: tuple[Strategy, ...]) -> Registry[Strategy]:
    # Keys are read in this order, too: data parallelism takes the devices that the others leave.
    ordered = sorted(known, key=lambda each: (each.order, each.name))
    return Registry("strategy", ordered, name=lambda each: each.name, aliases=_other_words)


def _other_words(strategy: Strategy) -> tuple[str, ...]:
    """Words besides its name; no two strategies may share one."""
    return tuple(word for word in strategy.words if word != strategy.name)


@contextmanager
def register_strategy(strategy: Strategy) -> Iterator[None]:
    """A context in which one more strategy is registered."""
    strategies()
    _known.append(strategy)
    try:
        strategies()  # rejects a duplicate name
        yield
    finally:
        _known.remove(strategy)


def replication(layout: Layout) -> Strategy:
    """The strategy that defines the exchanges between replicas of a layout."""
    return strategies()[layout.replication]


def shards_state(layout: Layout) -> bool:
    """Whether replicas share parameters, gradients or optimizer state."""
    return replication(layout).shards(layout) != Shards()


def is_single_process(layout: Layout) -> bool:
    """Whether one process drives all devices, as PyTorch's DataParallel does."""
    return replication(layout).is_single_process


def active_strategies(layout: Layout) -> tuple[Strategy, ...]:
    """The strategies that apply to a layout: those that divide the model, and that of its replicas."""
    degrees = layout.degrees
    return tuple(
        each
        for each in strategies().values()
        if each.name == layout.replication
        or (not each.words and (each.axis is None or degrees[each.axis] > 1))
    )


def divide_step(step: ExecutedGraph, layout: Layout) -> Program:
    """The program of one device with divided layers, compiled if the workload is.

    Fused kernels hide the dimensions they work on, so the graph is divided first and fused afterwards. Of a
    model of many equal blocks, a few are divided and fused (see `workloads.depth`).
    """
    if step.shallow is not None:
        low, high, extra = step.shallow
        with suppress(NotDerivable, InvalidRequest):  # errors are those of the whole model
            return deepen_program(divide_step(low, layout), divide_step(high, layout), extra)
    whole = program = Program(step.source)
    for each in active_strategies(layout):
        program = each.divide(program, layout)
    executed = Program(step.graph) if program is whole else compile_program(program)
    for each in active_strategies(layout):
        executed = each.overlap(executed, layout)
    return executed


def forms() -> str:
    """The syntax of strategies, for help texts and errors."""
    single = [each.form for each in strategies().values() if each.words]
    listed = [each.form for each in strategies().values() if not each.words]
    return f"{', '.join(single)}, degrees such as {','.join(listed[:3])}, or {AUTO}"


def words() -> tuple[str, ...]:
    """All single words that select a strategy."""
    return (*(word for each in strategies().values() for word in each.words), AUTO)


def plan_words() -> tuple[str, ...]:
    """The strategies that `plan` compares, data parallelism first."""
    return tuple(word for each in strategies().values() for word in each.plan_words)


def plan_word_of(text: str) -> str:
    """A strategy as `plan` compares it: `fsdp` is the third stage of ZeRO."""
    return next((each.planned_as(text) for each in strategies().values() if each.claims(text)), text)


def strategy_of(text: str) -> Strategy:
    """The strategy of a text; for a list of degrees, that of its replicas."""
    for each in strategies().values():
        if each.claims(text):
            return each
    if "=" not in text:
        raise InvalidRequest(_unknown(text))
    given = _parse_degrees(text)
    own = (each for each in strategies().values() if each.replicates(given))
    return next(own, strategies()[DATA_PARALLEL])


def layout_of(text: str, devices: int, devices_per_node: int) -> Layout:
    """The layout of a strategy text on a number of devices."""
    for each in strategies().values():
        if each.claims(text):
            return each.parse(text, devices, devices_per_node)
    if "=" not in text:
        raise InvalidRequest(_unknown(text))
    given, layout = _parse_degrees(text), Layout(text, data=devices)
    for each in strategies().values():
        layout = each.read(given, layout)
    return layout


def _unknown(text: str) -> str:
    near = nearest(text, words())
    suggestion = f"; did you mean {near[0]}?" if near else ""
    return f"strategy {text!r} is not one of {forms()}{suggestion}"


def _parse_degrees(text: str) -> dict[str, str]:
    known = tuple(key for each in strategies().values() for key in each.keys)
    given: dict[str, str] = {}
    for item in text.split(","):
        name, _, value = item.strip().partition("=")
        if name not in known:
            raise InvalidRequest(f"strategy {text!r}: {name!r} is not one of {', '.join(known)}")
        if name in given:
            raise InvalidRequest(f"strategy {text!r} gives {name} twice; give it once")
        given[name] = value
    return given


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
