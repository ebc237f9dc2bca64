"""Resource consumption of a step: bursts and idle gaps of four resources, from the timeline of one worker.

Bursts are bursts in the predicted signals by the definition that measured ones are (`bursts`), sampled as a
monitor would: 50 times in a cycle or, to compare with a monitor, in its interval. Durations are as uncertain
as the step; rates on the network as the exchanges; no interval is known for levels of computing and memory.

The consumption of a step, and that of the same step with one change at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from foretrain.answers import Answer, Infeasible
from foretrain.encoding import encode
from foretrain.errors import InvalidRequest
from foretrain.estimates import Quantiles
from foretrain.facts.hardware import Cluster
from foretrain.prediction.operators.pricing import Knowledge
from foretrain.prediction.resources.bursts import Bursts, Pattern, bursts_of
from foretrain.prediction.resources.worker_cycle import WorkerCycle, worker_cycle
from foretrain.prediction.scenario import Evaluation, Scenario
from foretrain.store.runs import UNITS, Resource
from foretrain.units import format_duration
from foretrain.workloads.workload import Workload

NAMES: Mapping[Resource, str] = {
    Resource.GPU: "gpu",
    Resource.CPU: "cpu",
    Resource.GPU_MEMORY_BUSY: "gpu_memory",
    Resource.MEMORY: "memory",
    Resource.TRANSMIT: "transmit",
    Resource.RECEIVE: "receive",
}
"""How answers call the four resources: `cpu` and `memory` take the places of `gpu` and `gpu_memory`."""
METRICS = ("burst_amount", "burst_duration", "idle_duration")
TIMELINE, INSPECTOR = "timeline", "inspector"
_SAMPLES_PER_CYCLE = 50


@dataclass(frozen=True, slots=True)
class ResourceFigure:
    """A predicted figure: its median, and its 10th and 90th percentile where they are known."""

    p50: float
    p10: float | None = None
    p90: float | None = None


@dataclass(frozen=True, kw_only=True)
class ResourceBursts:
    """One resource of a worker: pattern, levels and durations. A pattern without gaps has none."""

    resource: Resource
    pattern: Pattern
    burst_amount: ResourceFigure
    burst_duration: ResourceFigure
    idle_duration: ResourceFigure
    idle_amount: float

    @property
    def name(self) -> str:
        """How answers call it."""
        return NAMES[self.resource]

    @property
    def unit(self) -> str:
        """The unit of its amounts."""
        return UNITS[self.resource]


@dataclass(frozen=True)
class Consumption(Answer):
    """What a worker uses in the course of a step: four resources, and by which method they were predicted."""

    workload: Workload
    cluster: Cluster
    strategy: str
    batch: int
    step_seconds: Quantiles
    cycle_seconds: float
    resources: tuple[ResourceBursts, ...]
    method: str
    reason: str
    knowledge: Knowledge
    link: str
    notes: tuple[str, ...]
    cycle: WorkerCycle

    def of(self, name: str) -> ResourceBursts:
        """A resource by its name."""
        return next(each for each in self.resources if each.name == name)

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data."""
        return {
            "workload": {"model": self.workload.source.name, "batch": self.batch},
            "hardware": {"name": self.cluster.name, "strategy": self.strategy, "link": self.link},
            "knowledge": self.knowledge.value,
            "method": self.method,
            "reason": self.reason,
            "step_seconds": encode(self.step_seconds),
            "cycle_seconds": self.cycle_seconds,
            "resources": {
                each.name: {
                    "unit": each.unit,
                    "pattern": each.pattern.value,
                    **{metric: encode(getattr(each, metric)) for metric in METRICS},
                    "idle_amount": each.idle_amount,
                }
                for each in self.resources
            },
            "notes": list(self.notes),
        }

    def summary(self) -> tuple[tuple[str, str], ...]:
        """The four resources in words."""
        return (
            ("model", self.workload.source.name),
            ("hardware", f"{self.cluster.name}, {self.strategy}"),
            ("method", self.method),
            *((each.name, words(each)) for each in self.resources),
        )


def words(each: ResourceBursts) -> str:
    """A resource in one line."""
    if each.pattern is Pattern.IDLE:
        return "idle"
    level = format_level(each.burst_amount.p50, each.unit)
    if each.pattern is Pattern.BUSY:
        return f"{level} without gaps"
    idle = f"{format_level(each.idle_amount, each.unit)} for {format_duration(each.idle_duration.p50)}"
    return f"{level} for {format_duration(each.burst_duration.p50)}, then {idle}"


def format_level(level: float, unit: str) -> str:
    """A level of a resource with its unit."""
    if unit == "share":
        return f"{level:.1%}"
    if unit == "bytes/s":
        return f"{level / 1e6:,.1f} MB/s"
    return f"{level / 1e6:,.0f} MB" if unit == "bytes" else f"{level:.2f} {unit}"


def timeline_consumption(
    scenario: Scenario, pace: Evaluation, reason: str, sample_seconds: float | None = None
) -> Consumption:
    """The consumption of an evaluated step, by its timeline."""
    if sample_seconds is not None and not sample_seconds > 0:
        raise InvalidRequest(f"`sample_every` must be above 0, got {sample_seconds}")
    cycle = worker_cycle(pace)
    interval = sample_seconds or cycle.period_seconds / _SAMPLES_PER_CYCLE
    total = pace.total.quantiles
    bursts = [bursts_of(signal.sampled(resource, interval)) for resource, signal in cycle.signals.items()]
    return Consumption(
        workload=pace.context.workload,
        cluster=scenario.cluster,
        strategy=pace.configuration.layout.name,
        batch=pace.configuration.batch,
        step_seconds=total,
        cycle_seconds=cycle.period_seconds,
        resources=tuple(_figures(each, pace) for each in bursts if each is not None),
        method=TIMELINE,
        reason=reason,
        knowledge=pace.step.priced.knowledge,
        link=cycle.link,
        notes=tuple(dict.fromkeys((*pace.context.environment.network.notes, *pace.step.notes))),
        cycle=cycle,
    )


def _figures(bursts: Bursts, pace: Evaluation) -> ResourceBursts:
    total = pace.total.quantiles
    below, above = (total.p10 / total.p50, total.p90 / total.p50) if total.p50 else (1.0, 1.0)
    amount = ResourceFigure(bursts.burst_amount)
    if bursts.resource in (Resource.TRANSMIT, Resource.RECEIVE) and pace.step.traffic:
        longest = max(pace.step.traffic, key=lambda each: each.seconds)
        amount = ResourceFigure(
            bursts.burst_amount,
            bursts.burst_amount / max(longest.p90, 1.0),
            bursts.burst_amount / min(max(longest.p10, 1e-3), 1.0),
        )
    durations = [
        ResourceFigure(value, value * below, value * above)
        for value in (bursts.burst_duration, bursts.idle_duration)
    ]
    if bursts.pattern is not Pattern.ALTERNATING:  # lasts as long as one looks
        durations = [ResourceFigure(0.0), ResourceFigure(0.0)]
    return ResourceBursts(
        resource=bursts.resource,
        pattern=bursts.pattern,
        burst_amount=amount,
        burst_duration=durations[0],
        idle_duration=durations[1],
        idle_amount=bursts.idle_amount,
    )


@dataclass(frozen=True)
class WhatIf:
    """A change (`gpu=rtx2080ti`) and what is predicted with it."""

    change: str
    answer: Consumption | Infeasible


@dataclass(frozen=True)
class ConsumptionAnswer(Answer):
    """What `resources` answers."""

    consumption: Consumption
    what_if: tuple[WhatIf, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data; each change has all keys of the base."""
        changed = [
            {
                "change": each.change,
                **(
                    {"infeasible": str(each.answer)}
                    if isinstance(each.answer, Infeasible)
                    else each.answer.to_dict()
                ),
            }
            for each in self.what_if
        ]
        return {**self.consumption.to_dict(), "what_if": changed}

    def summary(self) -> tuple[tuple[str, str], ...]:
        """The base, and the computing of each change."""
        changes = tuple(
            (
                each.change,
                str(each.answer) if isinstance(each.answer, Infeasible) else words(each.answer.resources[0]),
            )
            for each in self.what_if
        )
        return (*self.consumption.summary(), *changes)
