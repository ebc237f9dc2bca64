"""What `plan` answers: every machine that could run a job, the Pareto front among them, and what to take.

Nouns only, frozen and the same on every face; `planning.plan` fills them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # nouns only: nothing is called here
    from foretrain.estimates import Quantiles
    from foretrain.facts.hardware import Hardware
    from foretrain.facts.offers import Offer
    from foretrain.jobs.job import Job
    from foretrain.planning.job_stream import JobStream
    from foretrain.planning.selection import Reason
    from foretrain.planning.two_phases.phases import PhasePlan
    from foretrain.prediction.answer import Prediction
    from foretrain.prediction.operators._base import Knowledge


@dataclass(frozen=True, slots=True)
class Way:
    """How the job runs on some machines: its strategy, batch sizes and micro-batches, and what that takes.

    `batch` is of each replica in a step; `memory_bytes` of the fullest device.
    """

    strategy: str
    batch: int
    micro_batches: int
    global_batch: int
    checkpoint_activations: bool
    steps: int
    step_seconds: Quantiles
    memory_bytes: float
    knowledge: Knowledge


@dataclass(frozen=True, slots=True)
class Plan:
    """So many machines of one offer, the best way to run the job on them, and what the whole job takes.

    `in_time`, `in_budget` and `both` are probabilities; 1 where there is no such limit. `co2_kg` is None
    where the grid of the place is unknown.
    """

    hardware: Hardware
    offer: Offer
    spot: bool
    way: Way
    seconds: Quantiles
    usd: Quantiles
    kwh: float | None
    co2_kg: float | None
    in_time: float
    in_budget: float
    both: float

    @property
    def machines(self) -> int:
        """Machines rented together."""
        return self.hardware.nodes

    @property
    def devices(self) -> int:
        """GPUs in all of them."""
        return self.hardware.devices

    @property
    def usd_per_hour(self) -> float:
        """What all machines together cost an hour."""
        return self.offer.price(self.spot) * self.machines


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Offers that were not planned, and why: `count` machine types, with a few of their names."""

    reason: str
    count: int
    examples: tuple[str, ...]

    @property
    def machine_types(self) -> str:
        """`3 machine types`."""
        return f"{self.count} machine type{'' if self.count == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class TwoPhases:
    """A plan of two phases that beats the best single one, and by how much."""

    plan: PhasePlan
    first: Plan
    second: Plan
    switch_share: float
    """The share of the job's training after which it moves."""
    flattens_at_share: float | None
    """The share at which the loss curve flattens, where a log says so."""
    saved_usd: float
    saved_seconds: float
    note: str = ""
    """What is not counted."""


@dataclass(frozen=True)
class Frontier:
    """The answer. `plans` are ordered by money; indices point into them; `reasons` belong to `plans`.

    `chosen` is the one to take: the cheapest that meets the deadline, else the fastest within the budget,
    else the knee of the front; None if nothing meets the limits. `job` is of the chosen one (of the one
    nearest to the limits where nothing meets them), and so is the `prediction` of its step, if asked for.
    """

    model: str
    deadline_seconds: float | None
    budget_usd: float | None
    plans: tuple[Plan, ...]
    reasons: tuple[Reason, ...]
    front: tuple[int, ...]
    cheapest: int | None
    fastest: int | None
    knee: int | None
    chosen: int | None
    shown: int
    """The plan `job` and `prediction` tell of: `chosen`, or the nearest miss."""
    job: Job
    prediction: Prediction | None
    two_phases: TwoPhases | None
    job_stream: JobStream | None
    left_out: tuple[LeftOut, ...]
    considered: int
    """Combinations of machines, strategy and batch size that were compared."""
    notes: tuple[str, ...]

    @property
    def meets_limits(self) -> bool:
        """Whether some plan is expected to keep deadline and budget."""
        return self.chosen is not None

    def on_front(self) -> Iterator[Plan]:
        """The plans no other beats in both time and money, fastest first."""
        return (self.plans[index] for index in self.front)
