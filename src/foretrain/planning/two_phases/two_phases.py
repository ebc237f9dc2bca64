"""Moving a job: the first part on one plan's machines, the rest on another's, where that beats every one.

The checkpoint is written by the first machines, fetched over the network by the second once they are up, and
paid for where it leaves a cloud. Each machine makes progress evenly over its own plan, so the loss curve
decides only how long that is, and where it flattens is told beside the switch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from foretrain.facts.billing import BillingTerms
from foretrain.facts.running import CHECKPOINT_FIXED, CHECKPOINT_RATE, STARTUP, default
from foretrain.jobs.job import JobOptions
from foretrain.planning.frontier import Plan, TwoPhases
from foretrain.planning.selection import EVEN, Limits
from foretrain.planning.two_phases.phases import (
    HandOver,
    PhaseAnswer,
    PhasedJob,
    Runner,
    cheapest_in_phases,
    fastest_in_phases,
    worth_pairing,
)
from foretrain.units import GIGA

_WORTH_MOVING = 0.01
"""The share of money or time saved from which a job is moved: below it the trouble is not worth it."""
_PROGRESS_STEPS = 10_000
"""The job in equal parts: a switch is placed to a hundredth of a percent of it."""


def two_phases(
    plans: Sequence[Plan],
    terms: Sequence[BillingTerms],
    limits: Limits,
    running: JobOptions,
    state_bytes: float,
    flattens_at_share: float | None,
) -> TwoPhases | None:
    """The best two-phase plan within the limits, by medians, if it wins; None without a limit.

    Two phases fill a limit to the brim, so they are not offered to those who want to be surer than even.
    """
    if limits.confidence != EVEN or not limits.any:
        return None
    start = default(STARTUP).quantiles.p50 if running.startup_seconds is None else running.startup_seconds
    runners = [_runner(plan, terms[index], start) for index, plan in enumerate(plans)]
    kept = _kept(plans, runners)
    moving = _hand_over(
        [plans[index] for index in kept], [terms[index] for index in kept], running, state_bytes
    )
    job = PhasedJob((_PROGRESS_STEPS,), tuple(runners[index] for index in kept), moving)
    answer = _answer(job, limits)
    if answer.single is None or answer.two_phase is None or not _is_worth_it(answer, limits):
        return None
    place = {runners[index].name: index for index in kept}
    first, second = (plans[place[phase.runner.name]] for phase in answer.two_phase.phases)
    return TwoPhases(
        plan=answer.two_phase,
        first=first,
        second=second,
        switch_share=answer.two_phase.phases[0].last_step / _PROGRESS_STEPS,
        flattens_at_share=flattens_at_share,
        saved_usd=answer.single.usd - answer.two_phase.usd,
        saved_seconds=answer.single.seconds - answer.two_phase.seconds,
        note=_uncounted(first, second, terms[place[first.hardware.name]]),
    )


def _is_worth_it(answer: PhaseAnswer, limits: Limits) -> bool:
    """Whether two phases keep the budget too, and save enough of what is to be least."""
    single, two = answer.single, answer.two_phase
    if single is None or two is None or two.usd > limits.budget:
        return False
    if limits.deadline_seconds is not None:
        return single.usd - two.usd >= _WORTH_MOVING * single.usd
    return single.seconds - two.seconds >= _WORTH_MOVING * single.seconds


def _uncounted(first: Plan, second: Plan, terms: BillingTerms) -> str:
    """That leaving a cloud may cost what nobody has looked up."""
    if first.offer.provider == second.offer.provider or terms.egress_usd_per_gb is not None:
        return ""
    return f"what sending the checkpoint out of {first.offer.provider} costs is not known, and not counted"


def _answer(job: PhasedJob, limits: Limits) -> PhaseAnswer:
    if limits.deadline_seconds is not None:
        return cheapest_in_phases(job, limits.deadline)
    return fastest_in_phases(job, limits.budget)


def _runner(plan: Plan, terms: BillingTerms, start: float) -> Runner:
    """All that is not start-up, spread evenly over the job."""
    working = max(plan.seconds.p50 - start, 1e-9)
    return Runner(plan.hardware.name, (working / _PROGRESS_STEPS,), plan.usd_per_hour, terms, start)


def _kept(plans: Sequence[Plan], runners: Sequence[Runner]) -> list[int]:
    """The plans worth pairing: of each provider, since leaving costs the same from all its machines."""
    by_provider: dict[str, list[int]] = defaultdict(list)
    for index, plan in enumerate(plans):
        by_provider[plan.offer.provider].append(index)
    return sorted(
        mine[kept]
        for mine in by_provider.values()
        for kept in worth_pairing([runners[index] for index in mine])
    )


def _hand_over(
    plans: Sequence[Plan], terms: Sequence[BillingTerms], running: JobOptions, state_bytes: float
) -> HandOver:
    """Write here, read there; between clouds the checkpoint is paid for as it leaves."""
    given = running.checkpoint_bytes_per_second
    rate = default(CHECKPOINT_RATE).quantiles.p50 if given is None else given
    fixed = running.checkpoint_fixed_seconds
    if fixed is None:
        fixed = default(CHECKPOINT_FIXED).quantiles.p50
    moved = fixed + state_bytes / rate
    owner = np.array([plan.offer.provider for plan in plans])
    leaving = np.array([each.egress_usd_per_gb or 0.0 for each in terms]) * state_bytes / GIGA
    usd = np.where(owner[:, None] != owner[None, :], leaving[:, None], 0.0)
    return HandOver(moved, moved, 0.0, usd)
