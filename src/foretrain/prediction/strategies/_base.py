"""What a strategy is: one file that names itself, parses its text and rewrites the program of a step.

Strategies compose. Some cut through layers (tensor, context and expert parallelism: `divide`), one cuts the
model into stages (the pipeline), and one decides what replicas exchange (data parallelism, sharding,
parameter servers: `replicate`); a `Layout` holds the degrees of all of them. Help texts, search, plans, the
buyer's guide and launch files ask the registry (`catalogue`), so a new strategy is one new file.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from foretrain.errors import InvalidRequest
from foretrain.prediction.collectives._base import Verb
from foretrain.prediction.operators.listing import Floats
from foretrain.prediction.strategies.memory_options import MemoryOptions
from foretrain.prediction.strategies.program import Axis, Program

if TYPE_CHECKING:
    from foretrain.prediction.cost_models.priced_step import CallTimes
    from foretrain.prediction.stragglers import WorkerTimes
    from foretrain.prediction.strategies.layout import Layout, PsUpdate

TORCHRUN_BASED = frozenset({"torchrun", "slurm", "skypilot", "ray"})
"""Launchers that start one process per device with torchrun's environment."""

ExchangeSeconds = Callable[[Verb, Floats, tuple[Axis, ...]], Floats]
"""Seconds of exchanges of given bytes along some axes, sent in buckets."""


@dataclass(frozen=True, slots=True)
class Shards:
    """Over how many devices each kind of state is divided; outside experts over `dense` times as many."""

    parameters: int = 1
    gradients: int = 1
    optimizer: int = 1
    dense: int = 1


class Strategy(ABC):
    """One way to parallelise a training step; every hook returns what it is given unless it has a part.

    `name` is what it is registered by, `words` are texts of one word that stand for it, `keys` those it reads
    of a list of degrees, `form` how help texts show it. `launchers` can start it. `plan_words` are the texts
    that `plan` compares. `has_jitter` says whether its devices wait for the slowest of them.
    """

    name: ClassVar[str]
    words: ClassVar[tuple[str, ...]] = ()
    keys: ClassVar[tuple[str, ...]] = ()
    form: ClassVar[str]
    launchers: ClassVar[frozenset[str]] = TORCHRUN_BASED
    plan_words: ClassVar[tuple[str, ...]] = ()
    has_jitter: ClassVar[bool] = True
    order: ClassVar[int] = 50
    """Strategies read keys and divide programs in this order."""

    def claims(self, text: str) -> bool:
        """Whether a text that is no list of degrees stands for this strategy."""
        return text in self.words

    def parse(self, text: str, devices: int, devices_per_node: int) -> Layout:
        """The layout that a claimed text stands for."""
        del devices, devices_per_node
        raise InvalidRequest(f"strategy {text!r} does not name a layout by itself; write {self.form}")

    def read(self, given: Mapping[str, str], layout: Layout) -> Layout:
        """The layout with this strategy's keys; `layout.data` holds the replicas not assigned yet."""
        del given
        return layout

    def divide(self, program: Program, layout: Layout) -> Program:
        """The program with its layers divided between devices, before it is priced."""
        del layout
        return program

    def replicate(self, program: Program, layout: Layout) -> Program:
        """A stage's program with the exchanges between its replicas."""
        del layout
        return program

    def call_times(self, times: CallTimes, program: Program, layout: Layout) -> CallTimes:
        """Times of calls where the strategy changes how they are launched."""
        del program, layout
        return times

    def update(self, layout: Layout, worker: WorkerTimes, message: float, updating: float) -> PsUpdate | None:
        """An update by parameter servers; None where replicas exchange among themselves."""
        del layout, worker, message, updating
        return None

    def shards(self, layout: Layout) -> Shards:
        """Over how many devices state is divided."""
        del layout
        return Shards()

    def memory(self, options: MemoryOptions, program: Program, layout: Layout) -> MemoryOptions:
        """How a device of a stage spends memory."""
        del program, layout
        return options

    def exposed_seconds(
        self,
        layout: Layout,
        sent_bytes: Floats,
        forward: Floats,
        backward: Floats,
        micro_batches: int,
        exchange: ExchangeSeconds,
    ) -> Floats:
        """Closed form of what exchanges between replicas add to the step of each stage.

        `sent_bytes` are the parameters or gradients of each stage as they are sent, `forward` and `backward`
        the seconds of its passes. The search and `plan` rank by it; what they report is predicted in full.
        """
        del layout, forward, backward, micro_batches, exchange
        return sent_bytes * 0.0

    def candidates(self, devices: int, devices_per_node: int) -> tuple[Layout, ...]:
        """Further layouts that `auto` compares, beyond all combinations of degrees."""
        del devices, devices_per_node
        return ()

    def environment(self, layout: Layout) -> tuple[tuple[str, str, str], ...]:
        """Variables a launched script reads: name after FORETRAIN_, value, purpose."""
        del layout
        return ()
