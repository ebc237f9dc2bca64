"""The interface of a strategy: its name, its text, and how it rewrites the program of a step.

Strategies compose. Tensor, context and expert parallelism divide layers (`divide`), pipeline parallelism cuts
the model into stages, and one strategy defines the exchanges between replicas (data parallelism, sharding,
parameter servers: `replicate`). A `Layout` holds the degrees of all. Help texts, search, plans, the buyer's
guide and launch files use the registry (`catalogue`), so that a new strategy is one new file.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar

from foretrain.errors import InvalidRequest
from foretrain.prediction.collectives._base import Verb
from foretrain.prediction.operators.listing import Floats
from foretrain.prediction.strategies.program import Axis, MemoryOptions, Program

if TYPE_CHECKING:
    from foretrain.prediction.cost_models.priced_step import CallTimes
    from foretrain.prediction.stragglers import WorkerTimes
    from foretrain.prediction.strategies.layout import Layout, PsUpdate

ExchangeSeconds = Callable[[Verb, Floats, tuple[Axis, ...]], Floats]
"""Seconds of exchanges by verb, bytes and axes; messages are sent in buckets."""


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
    wait for the slowest of them.
    """

    name: ClassVar[str]
    words: ClassVar[tuple[str, ...]] = ()
    keys: ClassVar[tuple[str, ...]] = ()
    form: ClassVar[str]
    launchers: ClassVar[frozenset[str] | None] = None
    plan_words: ClassVar[tuple[str, ...]] = ()
    has_jitter: ClassVar[bool] = True
    order: ClassVar[int] = 50
    """Strategies read keys and divide programs in ascending order."""

    def claims(self, text: str) -> bool:
        """Whether a text that is not a list of degrees selects this strategy."""
        return text in self.words

    def parse(self, text: str, devices: int, devices_per_node: int) -> Layout:
        """The layout of a text that this strategy claims."""
        del devices, devices_per_node
        raise InvalidRequest(f"strategy {text!r} does not define a layout on its own; write {self.form}")

    def read(self, given: Mapping[str, str], layout: Layout) -> Layout:
        """The layout with the keys of this strategy; `layout.data` holds the devices not yet assigned."""
        del given
        return layout

    def divide(self, program: Program, layout: Layout) -> Program:
        """The program with layers divided between devices, before it is priced."""
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
