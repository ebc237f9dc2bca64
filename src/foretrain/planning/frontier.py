"""The answer of `plan`: every machine that could run a job, the Pareto front among them, and the choice.

Nouns only, complete when built; `planning.plan` builds them. `Frontier.to_dict` is its JSON form.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foretrain.answers import Answer
from foretrain.encoding import encode
from foretrain.prediction.spread import surprise
from foretrain.units import MEGA, format_duration, format_money

if TYPE_CHECKING:  # nouns only: nothing is called here
    from foretrain.estimates import Quantiles
    from foretrain.facts.hardware import Hardware
    from foretrain.facts.offers import Offer
    from foretrain.jobs.configurations import RunConfiguration
    from foretrain.jobs.job import Job
    from foretrain.planning.rent_or_buy import JobStream
    from foretrain.planning.selection import Reason
    from foretrain.planning.two_phases.phases import PhasePlan
    from foretrain.prediction.answer import Prediction
    from foretrain.workloads.training_configs import ConfigReport
    from foretrain.workloads.workload import Workload


@dataclass(frozen=True, slots=True)
class Plan:
    """Machines of one offer, the best run configuration on them, and what the whole job takes.

    `in_time`, `in_budget` and `both` are probabilities that the job fits into memory and meets the limit.
    `risks` has the probability of each way to fail by itself.
    `co2_kg` is None where the grid of the place is unknown.
    """

    hardware: Hardware
    offer: Offer
    spot: bool
    configuration: RunConfiguration
    seconds: Quantiles
    usd: Quantiles
    kwh: float | None
    co2_kg: float | None
    in_time: float
    in_budget: float
    both: float

    @property
    def risks(self) -> dict[str, float]:
        """The chance to miss the deadline, to exceed the budget, to run out of memory, to be a surprise.

        The last: nothing is certain on a device known by its data sheet only.
        """
        configuration = self.configuration
        works = configuration.reliability
        return {
            "deadline": max(0.0, 1 - self.in_time / works) if works else 0.0,
            "budget": max(0.0, 1 - self.in_budget / works) if works else 0.0,
            "memory": configuration.out_of_memory_probability,
            "unknown": surprise(configuration.knowledge_class),
        }

    @property
    def machines(self) -> int:
        """Machines rented together."""
        return self.hardware.nodes

    @property
    def devices(self) -> int:
        """GPUs in all machines."""
        return self.hardware.devices

    @property
    def usd_per_hour(self) -> float:
        """The hourly price of all machines together."""
        return self.offer.price(self.spot) * self.machines

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data, without the facts behind its devices."""
        offer, configuration = self.offer, self.configuration
        values = {
            "hardware": self.hardware.name,
            "provider": offer.provider,
            "instance": offer.instance,
            "region": offer.region,
            "device": self.hardware.device.id,
            "machines": self.machines,
            "gpus": self.devices,
            "spot": self.spot,
            "usd_per_hour": self.usd_per_hour,
            "price_as_of": offer.as_of,
            "strategy": configuration.strategy,
            "precision": configuration.precision,
            "weights": configuration.weights,
            "batch": configuration.batch,
            "micro_batches": configuration.micro_batches,
            "global_batch": configuration.global_batch,
            "checkpoint_activations": configuration.checkpoint_activations,
            "steps": configuration.steps,
            "step_seconds": configuration.step_seconds,
            "memory_bytes": configuration.memory_bytes,
            "out_of_memory_probability": configuration.out_of_memory_probability,
            "knowledge": configuration.knowledge,
            "knowledge_class": configuration.knowledge_class,
            "seconds": self.seconds,
            "usd": self.usd,
            "kwh": self.kwh,
            "co2_kg": self.co2_kg,
            "probability": {"deadline": self.in_time, "budget": self.in_budget, "both": self.both},
            "risk": self.risks,
        }
        return {key: encode(value) for key, value in values.items()}


SEVERAL = " × "
"""Between a number of machines and their name."""


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Machines that were not planned, and why: `count` of them, with a few of their names.

    `is_partly`: they were planned, but not in all numbers.
    """

    reason: str
    count: int
    examples: tuple[str, ...]
    is_partly: bool = False

    @property
    def machine_types(self) -> str:
        """`3 machine types`, or `3 sets of machines` where their number is what is excluded."""
        is_set = any(SEVERAL in name for name in self.examples)
        return f"{self.count} {'set' if is_set else 'machine type'}{'' if self.count == 1 else 's'}" + (
            " of machines" if is_set else ""
        )


@dataclass(frozen=True, slots=True)
class TwoPhases:
    """A plan of two phases that beats the best single one, and by how much.

    `switch_share` is the share of training after which the job moves; `flattens_at_share` that at which the
    loss curve flattens (None without a log). `note` names what is not counted.
    """

    plan: PhasePlan
    first: Plan
    second: Plan
    switch_share: float
    flattens_at_share: float | None
    saved_usd: float
    saved_seconds: float
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The two phases as plain data."""
        return {
            "switch_share": self.switch_share,
            "flattens_at_share": self.flattens_at_share,
            "seconds": self.plan.seconds,
            "usd": self.plan.usd,
            "hand_over_usd": self.plan.hand_over_usd,
            "saved_usd": self.saved_usd,
            "saved_seconds": self.saved_seconds,
            "note": self.note,
            "phases": [
                {"hardware": phase.runner.name, "seconds": phase.seconds, "usd": phase.usd}
                for phase in self.plan.phases
            ],
        }


@dataclass(frozen=True)
class Frontier(Answer):
    """The answer. `plans` are ordered by cost; indices point into them; `reasons` belong to `plans`.

    `chosen` is the cheapest plan that meets the deadline, else the fastest within the budget, else the knee
    of the front; None if no plan meets the limits. `reported` is the plan that `job` and `prediction` (if
    requested) describe: `chosen`, or the nearest miss. `rule` states how it was chosen; `next_best` follow by
    the same rule. `considered` counts the combinations of machines, strategy and batch size that were
    compared. `workload` is what was planned, its precision and weights as far as the request gave
    them. `tokens_per_sample` is None for models without tokens.
    """

    model: str
    workload: Workload
    deadline_seconds: float | None
    budget_usd: float | None
    plans: tuple[Plan, ...]
    reasons: tuple[Reason, ...]
    front: tuple[int, ...]
    cheapest: int | None
    fastest: int | None
    knee: int | None
    chosen: int | None
    reported: int
    job: Job
    prediction: Prediction | None
    two_phases: TwoPhases | None
    job_stream: JobStream | None
    excluded: tuple[Exclusion, ...]
    considered: int
    notes: tuple[str, ...]
    configuration: ConfigReport | None = None
    next_best: tuple[int, ...] = ()
    tokens_per_sample: float | None = None

    @property
    def rule(self) -> str:
        """How the reported plan was chosen."""
        if not self.meets_limits:
            return "the plan most likely to keep the limits"
        if self.deadline_seconds is not None:
            return (
                f"the cheapest plan within the deadline{'' if self.budget_usd is None else ' and the budget'}"
            )
        if self.budget_usd is not None:
            return "the fastest plan within the budget"
        return "the knee of the front, the least time x cost"

    def usd_per_million_tokens(self, plan: Plan) -> float | None:
        """The cost of a million tokens trained; None for models without tokens."""
        if self.tokens_per_sample is None:
            return None
        samples = plan.configuration.steps * plan.configuration.global_batch
        return plan.usd.p50 / (samples * self.tokens_per_sample) * MEGA

    @property
    def meets_limits(self) -> bool:
        """Whether some plan is expected to meet deadline and budget."""
        return self.chosen is not None

    def on_front(self) -> Iterator[Plan]:
        """The plans that no other beats in both time and cost, fastest first."""
        return (self.plans[index] for index in self.front)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; `front`, `cheapest`, `fastest`, `knee`, `chosen` are indices of `plans`."""
        return {
            "model": self.model,
            "limits": {"deadline_seconds": self.deadline_seconds, "budget_usd": self.budget_usd},
            "meets_limits": self.meets_limits,
            "chosen": self.chosen,
            "reported": self.reported,
            "rule": self.rule,
            "next_best": list(self.next_best),
            "front": list(self.front),
            "cheapest": self.cheapest,
            "fastest": self.fastest,
            "knee": self.knee,
            "plans": [
                plan.to_dict()
                | {"usd_per_million_tokens": self.usd_per_million_tokens(plan)}
                | _verdict(reason)
                for plan, reason in zip(self.plans, self.reasons, strict=True)
            ],
            "job": encode(self.job),
            "two_phases": None if self.two_phases is None else self.two_phases.to_dict(),
            "job_stream": encode(self.job_stream),
            "excluded": encode(self.excluded),
            "considered": self.considered,
            "notes": list(self.notes),
            **({} if self.configuration is None else {"configuration": encode(self.configuration)}),
        }

    def summary(self) -> tuple[tuple[str, str], ...]:
        """The plan to take, the limits, and the front."""
        rows = [("model", self.model), ("plan", _line(self.plans[self.reported]))]
        if not self.meets_limits:
            rows.append(("limits", "no plan meets them; this one is nearest"))
        rows += [(f"front, {place}", _line(plan)) for place, plan in enumerate(self.on_front(), 1)]
        return tuple(rows)


def _line(plan: Plan) -> str:
    return f"{plan.hardware.name}: {format_duration(plan.seconds.p50)}, {format_money(plan.usd.p50)}"


def _verdict(reason: Reason) -> dict[str, Any]:
    return {
        "verdict": encode(reason.verdict),
        "beaten_by": reason.better,
        "excess_seconds": reason.excess_seconds,
        "excess_usd": reason.excess_usd,
    }
