"""Two-phase plans: the steep part of training on one offer, the flat tail on another.

A phase consists of start-up and steps on its offer; at the switch the first offer writes the checkpoint, the
second fetches it and restarts, and leaving a cloud may cost money:

    t₁(k) = start_i + Σ_{step <= k} s_i + write
    t₂(k) = start_j + transfer + restart + Σ_{step > k} s_j
    seconds = t₁ + t₂        usd = bill_i(t₁) + bill_j(t₂) + usd of the hand-over

The loss curve enters through the **stages**: where it flattens, the critical batch size grows, so the time of
a step of progress changes on an offer that trains with its own batch. Steps are steps of progress at one
reference batch; `Runner.step_seconds` is the time of such a step on the offer, stage by stage (see
`jobs.epochs`). With one batch everywhere one stage is enough, and two phases then win only between two
offers: when a deadline is too tight for the cheaper one and leaves slack on the faster one, or a budget vice
versa.

The optimum over the switch step and the ordered pair of offers is exact, including the billing units and
minimum of each offer (see `switching`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from foretrain.convergence.curves import Floats
from foretrain.errors import InvalidRequest
from foretrain.facts.providers import BillingTerms, billed_seconds, billed_usd
from foretrain.planning.selection import cheapest_within, fastest_within
from foretrain.planning.two_phases.switching import PairLines, PhaseSwitch, cheapest_switch, fastest_switch
from foretrain.units import HOUR

_WORTH_SHOWING = 1e-9
"""A gain below this share is rounding error."""


@dataclass(frozen=True, slots=True)
class Runner:
    """An offer, and how fast the job runs on it: seconds of a step of progress in each stage."""

    name: str
    step_seconds: tuple[float, ...]
    usd_per_hour: float
    terms: BillingTerms
    start_seconds: float = 0.0

    def __post_init__(self) -> None:
        if not all(math.isfinite(step) and step > 0 for step in self.step_seconds):
            raise InvalidRequest(f"{self.name}: step times must be above 0, got {self.step_seconds} s")
        for name, value in (("usd_per_hour", self.usd_per_hour), ("start_seconds", self.start_seconds)):
            if not (math.isfinite(value) and value >= 0):
                raise InvalidRequest(f"{self.name}: {name} must be finite and at least 0, got {value}")


@dataclass(frozen=True)
class HandOver:
    """Time and cost of a switch: numbers, or tables [from, to] over the runners.

    `write_seconds` run on the first offer, `transfer_seconds` and `restart_seconds` on the second.
    """

    write_seconds: ArrayLike = 0.0
    transfer_seconds: ArrayLike = 0.0
    restart_seconds: ArrayLike = 0.0
    usd: ArrayLike = 0.0

    @property
    def is_the_same_for_all(self) -> bool:
        """Whether all four are numbers."""
        return all(
            np.ndim(value) == 0
            for value in (self.write_seconds, self.transfer_seconds, self.restart_seconds, self.usd)
        )

    def table(self, name: str, count: int) -> Floats:
        """One of them as a table over `count` runners."""
        values = np.asarray(getattr(self, name), dtype=float)
        if values.shape not in ((), (count, count)):
            raise InvalidRequest(
                f"{name} is a number or a table {count} x {count}, not of shape {values.shape}"
            )
        if not (np.isfinite(values) & (values >= 0)).all():
            raise InvalidRequest(f"{name} of a hand-over must be finite and at least 0")
        return np.broadcast_to(values, (count, count))


@dataclass(frozen=True)
class PhasedJob:
    """Steps of progress by stage, the offers that can run them, and the hand-over between offers."""

    stage_steps: tuple[int, ...]
    runners: tuple[Runner, ...]
    hand_over: HandOver = field(default_factory=HandOver)

    def __post_init__(self) -> None:
        if not self.stage_steps or min(self.stage_steps) < 1:
            raise InvalidRequest(f"a job needs stages of at least 1 step each, got {self.stage_steps}")
        if not self.runners:
            raise InvalidRequest("a job in phases needs at least one offer")
        for runner in self.runners:
            if len(runner.step_seconds) != len(self.stage_steps):
                raise InvalidRequest(
                    f"{runner.name} has step times of {len(runner.step_seconds)} stages, "
                    f"but the job has {len(self.stage_steps)}"
                )

    @property
    def steps(self) -> int:
        """All steps."""
        return sum(self.stage_steps)


@dataclass(frozen=True, slots=True)
class OfferPhase:
    """Steps on one offer: after `first_step` up to `last_step`."""

    runner: Runner
    first_step: int
    last_step: int
    seconds: float
    billed_seconds: float
    usd: float


@dataclass(frozen=True, slots=True)
class PhasePlan:
    """One phase or two, and the cost of the hand-over besides the machines."""

    phases: tuple[OfferPhase, ...]
    hand_over_usd: float = 0.0

    @property
    def seconds(self) -> float:
        """Time of all phases."""
        return math.fsum(phase.seconds for phase in self.phases)

    @property
    def usd(self) -> float:
        """Cost of all phases and the hand-over."""
        return math.fsum((*(phase.usd for phase in self.phases), self.hand_over_usd))


@dataclass(frozen=True, slots=True)
class PhaseAnswer:
    """The best plan on one offer, and the best on two where that wins; None where there is none."""

    single: PhasePlan | None
    two_phase: PhasePlan | None

    @property
    def best(self) -> PhasePlan | None:
        """The better of the two."""
        return self.two_phase or self.single

    @property
    def saved_usd(self) -> float | None:
        """Cost that two phases save against one; None unless both exist."""
        return self.single.usd - self.two_phase.usd if self.single and self.two_phase else None

    @property
    def saved_seconds(self) -> float | None:
        """Time two phases save against one (negative: they take longer); None unless both exist."""
        return self.single.seconds - self.two_phase.seconds if self.single and self.two_phase else None


def worth_pairing(runners: Sequence[Runner]) -> tuple[int, ...]:
    """The runners that no other dominates in the speed of every stage, price, start-up and minimum bill.

    Only runners of the same billing units are compared, so this changes no optimum: a plan with a dominated
    runner never beats the same plan with the dominating one, nor the latter alone.
    """
    needs = np.array(
        [(*r.step_seconds, r.usd_per_hour, r.start_seconds, r.terms.minimum_seconds) for r in runners]
    )
    units = np.array([runner.terms.granularity_seconds for runner in runners])
    kept: dict[float, list[int]] = {}
    for index in np.lexsort((*needs.T[::-1],)).tolist():  # a dominating runner comes first
        same_units = kept.setdefault(float(units[index]), [])
        if not (needs[same_units] <= needs[index]).all(axis=1).any():
            same_units.append(index)
    return tuple(sorted(index for same_units in kept.values() for index in same_units))


def cheapest_in_phases(job: PhasedJob, deadline: float = math.inf) -> PhaseAnswer:
    """The least cost within a deadline in seconds."""
    singles = _singles(job)
    index = cheapest_within(*_totals(singles), deadline)
    single = None if index is None else singles[index]
    below = math.inf if single is None else single.usd * (1 - _WORTH_SHOWING)
    return PhaseAnswer(single, _two_phase(job, cheapest_switch(_lines(job), deadline, below)))


def fastest_in_phases(job: PhasedJob, budget: float = math.inf) -> PhaseAnswer:
    """The least time within a budget in USD."""
    singles = _singles(job)
    index = fastest_within(*_totals(singles), budget)
    single = None if index is None else singles[index]
    below = math.inf if single is None else single.seconds * (1 - _WORTH_SHOWING)
    return PhaseAnswer(single, _two_phase(job, fastest_switch(_lines(job), budget, below)))


def plan_in_phases(job: PhasedJob, first: int, second: int, step: int) -> PhasePlan:
    """The plan that runs `step` steps on one runner and the rest on another."""
    if first == second or not 0 < step < job.steps:
        raise InvalidRequest(
            f"two phases need two offers and a switch after 1 to {job.steps - 1} steps, not after {step}"
        )
    cost = {name: _hand_over(job, name, first, second) for name in ("write", "transfer", "restart")}
    return PhasePlan(
        (
            _phase(job, first, 0, step, cost["write"]),
            _phase(job, second, step, job.steps, cost["transfer"] + cost["restart"]),
        ),
        float(job.hand_over.table("usd", len(job.runners))[first, second]),
    )


def _hand_over(job: PhasedJob, name: str, first: int, second: int) -> float:
    return float(job.hand_over.table(f"{name}_seconds", len(job.runners))[first, second])


def _two_phase(job: PhasedJob, switch: PhaseSwitch | None) -> PhasePlan | None:
    return None if switch is None else plan_in_phases(job, switch.first, switch.second, switch.step)


def _singles(job: PhasedJob) -> tuple[PhasePlan, ...]:
    return tuple(PhasePlan((_phase(job, index, 0, job.steps, 0.0),)) for index in range(len(job.runners)))


def _totals(plans: tuple[PhasePlan, ...]) -> tuple[list[float], list[float]]:
    return [plan.seconds for plan in plans], [plan.usd for plan in plans]


def _phase(job: PhasedJob, index: int, first_step: int, last_step: int, besides: float) -> OfferPhase:
    runner = job.runners[index]
    ends = np.concatenate(([0], np.cumsum(job.stage_steps)))
    work = math.fsum(
        max(0, min(last_step, end) - max(first_step, start)) * step_seconds
        for (start, end), step_seconds in zip(pairwise(ends.tolist()), runner.step_seconds, strict=True)
    )
    seconds = runner.start_seconds + work + besides
    return OfferPhase(
        runner,
        first_step,
        last_step,
        seconds,
        billed_seconds(seconds, runner.terms),
        billed_usd(seconds, runner.usd_per_hour, runner.terms),
    )


def _lines(job: PhasedJob) -> PairLines:
    """Every ordered pair of runners in every stage as lines in the switch step."""
    count = len(job.runners)
    rates = np.array([runner.step_seconds for runner in job.runners])
    starts = np.concatenate(([0], np.cumsum(job.stage_steps)))
    stage_seconds = rates * np.array(job.stage_steps)
    before = np.cumsum(stage_seconds, axis=1) - stage_seconds - rates * starts[:-1]  # as if from step 0
    column = {
        "start": np.array([runner.start_seconds for runner in job.runners]),
        "price": np.array([runner.usd_per_hour for runner in job.runners]) / HOUR,
        "granularity": np.array([runner.terms.granularity_seconds for runner in job.runners]),
        "minimum": np.array([runner.terms.minimum_seconds for runner in job.runners]),
    }
    paired = np.array(worth_pairing(job.runners) if job.hand_over.is_the_same_for_all else range(count))
    first, second, stage = (
        axis.ravel() for axis in np.meshgrid(paired, paired, np.arange(len(job.stage_steps)), indexing="ij")
    )
    low, high = np.maximum(1, starts[stage]), np.minimum(job.steps - 1, starts[stage + 1])
    kept = (first != second) & (low <= high)
    first, second, stage, low, high = (axis[kept] for axis in (first, second, stage, low, high))
    write, transfer, restart, usd = (
        job.hand_over.table(name, count)[first, second]
        for name in ("write_seconds", "transfer_seconds", "restart_seconds", "usd")
    )
    ahead = stage_seconds.sum(axis=1)[second] - before[second, stage]
    return PairLines(
        first=first,
        second=second,
        low=low,
        high=high,
        constant=(
            column["start"][first] + write + before[first, stage],
            column["start"][second] + transfer + restart + ahead,
        ),
        rate=(rates[first, stage], rates[second, stage]),
        usd_per_second=(column["price"][first], column["price"][second]),
        granularity=(column["granularity"][first], column["granularity"][second]),
        minimum=(column["minimum"][first], column["minimum"][second]),
        extra_usd=usd,
    )
