"""Two phases of a real plan, against brute force over every pair of machines and every switch."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from tests.support.planned import planned, request, workload

from foretrain.convergence.curves import Floats
from foretrain.facts.providers import providers
from foretrain.facts.running import CHECKPOINT_FIXED, CHECKPOINT_RATE, STARTUP, default
from foretrain.jobs.bill import billed_seconds_each
from foretrain.jobs.options import JobOptions
from foretrain.planning.frontier import Frontier, Plan, TwoPhases
from foretrain.planning.options import Limits
from foretrain.units import GIGA, HOUR
from foretrain.workloads.graph import state_bytes
from foretrain.workloads.workload import graph_at

PARTS = 10_000
"""A switch is placed to a hundredth of a percent of the job."""
ANYWHERE = np.arange(1, PARTS) / PARTS


@pytest.fixture(scope="module")
def few() -> Frontier:
    """A job on a few machines, without limits."""
    return planned(request())


def bill(plan: Plan, seconds: Floats) -> Floats:
    """By the terms of whoever rents it out."""
    terms = providers()[plan.offer.provider].billing_terms(plan.offer.instance)
    billed = billed_seconds_each(
        seconds, np.array(terms.granularity_seconds), np.array(terms.minimum_seconds)
    )
    return np.asarray(billed / HOUR * plan.usd_per_hour)


def moving(first: Plan, second: Plan, shares: Floats) -> tuple[Floats, Floats]:
    """Time and money of a job that moves after each of these shares of it, with starts and checkpoints."""
    start = default(STARTUP).quantiles.p50
    saved = state_bytes(graph_at(workload(), 1))
    moved = default(CHECKPOINT_FIXED).quantiles.p50 + saved / default(CHECKPOINT_RATE).quantiles.p50
    before = start + shares * (first.seconds.p50 - start) + moved
    after = start + (1 - shares) * (second.seconds.p50 - start) + moved
    usd = bill(first, before) + bill(second, after)
    if first.offer.provider != second.offer.provider:
        terms = providers()[first.offer.provider].billing_terms(first.offer.instance)
        usd = usd + (terms.egress_usd_per_gb or 0.0) * saved / GIGA
    return before + after, usd


@pytest.fixture(scope="module")
def every_move(few: Frontier) -> tuple[Floats, Floats]:
    """Time and money of every ordered pair of plans at every switch."""
    moves = [moving(*pair, ANYWHERE) for pair in itertools.permutations(few.plans, 2)]
    return np.concatenate([time for time, _ in moves]), np.concatenate([money for _, money in moves])


def check_sums(found: TwoPhases) -> None:
    """The reported plan is the sum of its phases."""
    seconds, usd = moving(found.first, found.second, np.array([found.switch_share]))
    assert found.plan.seconds == pytest.approx(seconds[0])
    assert found.plan.usd == pytest.approx(usd[0])
    assert [phase.runner.name for phase in found.plan.phases] == [
        found.first.hardware.name,
        found.second.hardware.name,
    ]


def test_within_a_deadline_no_move_is_cheaper(every_move: tuple[Floats, Floats]) -> None:
    seconds, usd = every_move
    for hours in (2.0, 5.0):
        limited = planned(request(limits=Limits(deadline=hours * HOUR)))
        found, single = limited.two_phases, limited.plans[limited.reported]
        assert found is not None
        check_sums(found)
        assert found.plan.seconds <= hours * HOUR
        assert found.plan.usd == pytest.approx(usd[seconds <= hours * HOUR].min(), rel=1e-9)
        assert found.saved_usd == pytest.approx(single.usd.p50 - found.plan.usd)
        assert found.saved_usd > 1
        assert found.saved_seconds == pytest.approx(single.seconds.p50 - found.plan.seconds)


def test_within_a_budget_no_move_is_faster(every_move: tuple[Floats, Floats]) -> None:
    seconds, usd = every_move
    limited = planned(request(limits=Limits(budget=22.0)))
    found, single = limited.two_phases, limited.plans[limited.reported]
    assert found is not None
    check_sums(found)
    assert found.plan.usd <= 22
    assert found.plan.seconds == pytest.approx(seconds[usd <= 22].min(), rel=1e-9)
    assert found.saved_seconds == pytest.approx(single.seconds.p50 - found.plan.seconds)
    assert found.saved_seconds > 0


def test_none_where_the_cheapest_is_in_time_anyway(few: Frontier) -> None:
    slowest = max(each.seconds.p50 for each in few.plans)
    assert planned(request(limits=Limits(deadline=2 * slowest))).two_phases is None


def test_none_without_limits_nor_where_nothing_keeps_them_nor_where_one_wants_to_be_surer(
    few: Frontier,
) -> None:
    assert few.two_phases is None
    assert planned(request(limits=Limits(deadline=60.0))).two_phases is None
    assert planned(request(limits=Limits(deadline=5 * HOUR, confidence=0.9))).two_phases is None


def test_none_that_breaks_the_other_limit() -> None:
    free = planned(request(limits=Limits(deadline=5 * HOUR))).two_phases
    assert free is not None
    cost = free.plan.usd
    assert planned(request(limits=Limits(deadline=5 * HOUR, budget=cost * 0.99))).two_phases is None
    within = planned(request(limits=Limits(deadline=5 * HOUR, budget=cost * 1.01))).two_phases
    assert within is not None and within.plan == free.plan


def test_slow_checkpoints_and_starts_eat_the_gain() -> None:
    usual = planned(request(limits=Limits(deadline=5 * HOUR))).two_phases
    slower = JobOptions(checkpoint_rate=1e4)
    later = planned(request(limits=Limits(deadline=5 * HOUR), options=slower)).two_phases
    assert usual is not None
    assert later is None or later.saved_usd < usual.saved_usd
    hours = replace(slower, startup=1.5 * HOUR, checkpoint_rate=None)
    assert planned(request(limits=Limits(deadline=5 * HOUR), options=hours)).two_phases is None
