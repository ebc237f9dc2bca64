"""Moving a job: the first part on the machines of one plan, the rest on another's, where that beats both.

The first machines write the checkpoint, the second fetch it over the network once they are up, and it is paid
for where it leaves a cloud. Every machine makes progress evenly over its own plan, so the loss curve only
decides how long that is; where the curve flattens is reported beside the switch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from foretrain.facts.providers import BillingTerms
from foretrain.facts.running import CHECKPOINT_FIXED, CHECKPOINT_RATE, STARTUP, default
from foretrain.jobs.options import JobOptions
from foretrain.planning.frontier import Plan, TwoPhases
from foretrain.planning.options import EVEN, Limits
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
"""The least share of cost or time that a move must save."""
_PROGRESS_STEPS = 10_000
"""The job in equal parts: the resolution of the switch."""


def two_phases(
    plans: Sequence[Plan],
    terms: Sequence[BillingTerms],
    limits: Limits,
    options: JobOptions,
    state_bytes: float,
    flattens_at_share: float | None,
) -> TwoPhases | None:
    """The best two-phase plan within the limits, by medians, if it wins; None without a limit.

    Two phases leave no slack to the limit, so they are not offered at a higher confidence.
    """
    if limits.confidence != EVEN or not limits.any:
        return None
    start = default(STARTUP).quantiles.p50 if options.startup is None else options.startup
    runners = [_runner(plan, terms[index], start) for index, plan in enumerate(plans)]
    kept = _keep_plans(plans, runners)
    moving = _hand_over(
        [plans[index] for index in kept], [terms[index] for index in kept], options, state_bytes
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
    """Whether two phases meet the budget too, and save enough cost (with a deadline) or time."""
    single, two = answer.single, answer.two_phase
    if single is None or two is None or two.usd > limits.most_usd:
        return False
    if limits.deadline is not None:
        return single.usd - two.usd >= _WORTH_MOVING * single.usd
    return single.seconds - two.seconds >= _WORTH_MOVING * single.seconds


def _uncounted(first: Plan, second: Plan, terms: BillingTerms) -> str:
    """A note on an unknown price of leaving a cloud."""
    if first.offer.provider == second.offer.provider or terms.egress_usd_per_gb is not None:
        return ""
    return f"the price of sending the checkpoint out of {first.offer.provider} is unknown and not counted"


def _answer(job: PhasedJob, limits: Limits) -> PhaseAnswer:
    if limits.deadline is not None:
        return cheapest_in_phases(job, limits.most_seconds)
    return fastest_in_phases(job, limits.most_usd)


def _runner(plan: Plan, terms: BillingTerms, start: float) -> Runner:
    """Everything but start-up, spread evenly over the job."""
    working = max(plan.seconds.p50 - start, 1e-9)
    return Runner(plan.hardware.name, (working / _PROGRESS_STEPS,), plan.usd_per_hour, terms, start)


def _keep_plans(plans: Sequence[Plan], runners: Sequence[Runner]) -> list[int]:
    """The plans worth pairing, by provider: leaving costs the same from all its machines."""
    by_provider: dict[str, list[int]] = defaultdict(list)
    for index, plan in enumerate(plans):
        by_provider[plan.offer.provider].append(index)
    return sorted(
        mine[kept]
        for mine in by_provider.values()
        for kept in worth_pairing([runners[index] for index in mine])
    )


def _hand_over(
    plans: Sequence[Plan], terms: Sequence[BillingTerms], options: JobOptions, state_bytes: float
) -> HandOver:
    """Write, then read; between clouds the checkpoint is paid for as it leaves."""
    given = options.checkpoint_rate
    rate = default(CHECKPOINT_RATE).quantiles.p50 if given is None else given
    fixed = options.checkpoint_fixed_seconds
    if fixed is None:
        fixed = default(CHECKPOINT_FIXED).quantiles.p50
    moved = fixed + state_bytes / rate
    owner = np.array([plan.offer.provider for plan in plans])
    leaving = np.array([each.egress_usd_per_gb or 0.0 for each in terms]) * state_bytes / GIGA
    usd = np.where(owner[:, None] != owner[None, :], leaving[:, None], 0.0)
    return HandOver(moved, moved, 0.0, usd)
