"""Two-phase plans against brute force over every pair of offers and every switch step."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrain.convergence.curves import Floats
from foretrain.errors import InvalidRequest
from foretrain.facts.providers import BillingTerms, billed_seconds
from foretrain.facts.sheets import FactKind
from foretrain.jobs.bill import billed_seconds_each
from foretrain.planning.two_phases import switching
from foretrain.planning.two_phases.phases import (
    HandOver,
    PhaseAnswer,
    PhasedJob,
    PhasePlan,
    Runner,
    cheapest_in_phases,
    fastest_in_phases,
    plan_in_phases,
    worth_pairing,
)


def terms(granularity: float = 0.0, minimum: float = 0.0) -> BillingTerms:
    return BillingTerms(granularity, minimum, FactKind.ASSUMED, "")


def every_plan(job: PhasedJob) -> list[PhasePlan]:
    count = len(job.runners)
    return [
        plan_in_phases(job, first, second, step)
        for first in range(count)
        for second in range(count)
        if first != second
        for step in range(1, job.steps)
    ]


def fastest_of_its_pair(job: PhasedJob, plan: PhasePlan, deadline: float) -> float:
    """The least time of plans that switch between the same offers in the same stage for the same money."""
    first, second = (next(i for i, r in enumerate(job.runners) if r is phase.runner) for phase in plan.phases)
    ends = np.cumsum(job.stage_steps)
    step = plan.phases[0].last_step
    low, high = max([1, *ends[ends < step].tolist()]), min(job.steps - 1, *ends[ends >= step].tolist())
    similar = (plan_in_phases(job, first, second, other) for other in range(low, high + 1))
    return min(other.seconds for other in similar if other.usd <= plan.usd and other.seconds <= deadline)


@st.composite
def jobs(draw: st.DrawFn) -> PhasedJob:
    stages = tuple(draw(st.lists(st.integers(1, 25), min_size=1, max_size=3)))
    quarter = st.integers(1, 40).map(lambda number: number / 4)
    runner = st.builds(
        Runner,
        name=st.just("offer"),
        step_seconds=st.tuples(*[quarter for _ in stages]),
        usd_per_hour=st.integers(0, 50).map(float),
        terms=st.builds(terms, st.sampled_from([0.0, 1.0, 7.0, 60.0]), st.sampled_from([0.0, 30.0, 60.0])),
        start_seconds=st.integers(0, 20).map(float),
    )
    runners = tuple(draw(st.lists(runner, min_size=1, max_size=4)))
    number = st.integers(0, 12).map(float)
    table = np.array(draw(st.lists(number, min_size=len(runners) ** 2, max_size=len(runners) ** 2)))
    usd = table.reshape(len(runners), len(runners)) / 1000
    return PhasedJob(stages, runners, HandOver(draw(number), draw(number), draw(number), usd))


@settings(max_examples=150)
@given(jobs(), st.floats(0, 1.2))
def test_the_cheapest_within_a_deadline_is_that_of_brute_force(job: PhasedJob, share: float) -> None:
    plans = every_plan(job)
    slowest = max((plan.seconds for plan in plans), default=100.0)
    deadline = round(share * slowest, 1) + 0.03  # clear of times, which are whole quarters
    answer = cheapest_in_phases(job, deadline)
    least = min((plan.usd for plan in plans if plan.seconds <= deadline), default=math.inf)
    single = math.inf if answer.single is None else answer.single.usd
    if answer.two_phase is None:
        assert least >= single * (1 - 1e-8)
    else:
        assert answer.two_phase.usd == pytest.approx(least, rel=1e-12)
        assert answer.two_phase.usd < single
        assert answer.two_phase.seconds <= deadline
        assert answer.two_phase.seconds <= fastest_of_its_pair(job, answer.two_phase, deadline) + 1e-9


@settings(max_examples=150)
@given(jobs(), st.floats(0, 1.2))
def test_the_fastest_within_a_budget_is_that_of_brute_force(job: PhasedJob, share: float) -> None:
    plans = every_plan(job)
    budget = share * max((plan.usd for plan in plans), default=1.0) + 1.3e-7
    answer = fastest_in_phases(job, budget)
    least = min((plan.seconds for plan in plans if plan.usd <= budget), default=math.inf)
    single = math.inf if answer.single is None else answer.single.seconds
    if answer.two_phase is None:
        assert least >= single * (1 - 1e-8)
    else:
        assert answer.two_phase.seconds == pytest.approx(least, rel=1e-12)
        assert answer.two_phase.seconds < single
        assert answer.two_phase.usd <= budget + 1e-12


@pytest.mark.parametrize("units", [(3600.0, 3600.0), (3600.0, 1.0), (60.0, 3600.0), (1.0, 1.0), (0.0, 60.0)])
def test_long_jobs_where_the_units_decide(units: tuple[float, float]) -> None:
    """50,000 steps: too many for trying all in the search, not for trying all here."""
    steps = 50_000
    job = PhasedJob(
        (steps,),
        (
            Runner("fast", (0.5,), 30.0, terms(units[0], 60.0), 120.0),
            Runner("cheap", (1.7,), 4.1, terms(units[1], 60.0), 300.0),
        ),
        HandOver(20.0, 35.0, 10.0, 0.4),
    )
    step = np.arange(1, steps)
    best_usd, best_seconds = math.inf, math.inf
    deadline, budget = 12.3 * 3600, 150.0
    for one, other in ((0, 1), (1, 0)):
        a, b = job.runners[one], job.runners[other]
        times = (a.start_seconds + 20 + a.step_seconds[0] * step,
                 b.start_seconds + 45 + b.step_seconds[0] * (steps - step))  # fmt: skip
        bills = [
            np.array([billed_seconds(float(time), runner.terms) for time in phase])
            / 3600
            * runner.usd_per_hour
            for runner, phase in ((a, times[0]), (b, times[1]))
        ]
        usd, seconds = bills[0] + bills[1] + 0.4, times[0] + times[1]
        best_usd = min(best_usd, usd[seconds <= deadline].min())
        best_seconds = min(best_seconds, seconds[usd <= budget].min())
    cheapest, fastest = cheapest_in_phases(job, deadline).two_phase, fastest_in_phases(job, budget).two_phase
    assert cheapest is not None and fastest is not None
    assert cheapest.usd == pytest.approx(best_usd, rel=1e-12)
    assert fastest.seconds == pytest.approx(best_seconds, rel=1e-12)


def long_job(seed: int) -> PhasedJob:
    """Thousands of steps, hundreds to a billing unit, so that only ends of units are looked at."""
    draw = np.random.default_rng(seed)
    stages = tuple(draw.integers(500, 3000, size=draw.integers(1, 3)).tolist())
    runners = tuple(
        Runner(
            str(index),
            tuple((speed * draw.uniform(0.7, 1.4, len(stages))).tolist()),
            float(draw.uniform(1, 3) / speed),
            terms(float(draw.choice([0.0, 60.0, 600.0, 3600.0])), float(draw.choice([0.0, 60.0, 600.0]))),
            float(draw.uniform(0, 300)),
        )
        for index, speed in enumerate(draw.lognormal(-0.5, 1.0, 4))
    )
    table = draw.uniform(0, 40, (3, 4, 4))
    return PhasedJob(stages, runners, HandOver(table[0], table[1], table[2], draw.uniform(0, 0.05, (4, 4))))


def all_switches(job: PhasedJob) -> tuple[Floats, Floats]:
    """Time and money of every pair at every step."""
    step = np.arange(1, job.steps)
    seconds, usd = [], []
    hand_over = job.hand_over
    for one, other in itertools.permutations(range(len(job.runners)), 2):
        a, b = job.runners[one], job.runners[other]
        done_a, done_b = (np.cumsum(np.repeat(r.step_seconds, job.stage_steps)) for r in (a, b))
        added = [hand_over.table(name, len(job.runners))[one, other]
                 for name in ("write_seconds", "transfer_seconds", "restart_seconds", "usd")]  # fmt: skip
        first = a.start_seconds + added[0] + done_a[step - 1]
        second = b.start_seconds + added[1] + added[2] + done_b[-1] - done_b[step - 1]
        bills = [
            billed_seconds_each(
                time, np.array(r.terms.granularity_seconds), np.array(r.terms.minimum_seconds)
            )
            / 3600
            * r.usd_per_hour
            for r, time in ((a, first), (b, second))
        ]
        seconds.append(first + second)
        usd.append(bills[0] + bills[1] + added[3])
    return np.concatenate(seconds), np.concatenate(usd)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("at_once", [20, 400_000])
def test_the_search_by_units_and_in_portions_misses_nothing(
    seed: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switching, "_CANDIDATES_AT_ONCE", at_once)
    job = long_job(seed)
    seconds, usd = all_switches(job)
    for share in (0.05, 0.2, 0.4, 0.7):
        deadline, budget = float(np.quantile(seconds, share)), float(np.quantile(usd, share))
        deadline, budget = deadline * (1 + 1e-7), budget * (1 + 1e-7)  # clear of rounding
        cheapest = cheapest_in_phases(job, deadline)
        check_least(cheapest, attrgetter("usd"), usd[seconds <= deadline].min())
        fastest = fastest_in_phases(job, budget)
        check_least(fastest, attrgetter("seconds"), seconds[usd <= budget].min())


def check_least(answer: PhaseAnswer, of: Callable[[PhasePlan], float], least: float) -> None:
    single = math.inf if answer.single is None else of(answer.single)
    if answer.two_phase is None:
        assert least >= single * (1 - 1e-8)
    else:
        assert of(answer.two_phase) == pytest.approx(least, rel=1e-9)
        assert of(answer.two_phase) < single


FAST = Runner("fast", (1.0,), 36.0, terms())
CHEAP = Runner("cheap", (4.0,), 3.6, terms())


def test_two_phases_by_hand() -> None:
    """1,000 steps: fast 1,000 s for $10, cheap 4,000 s for $4; 2,200 s leave 600 steps to the fast one."""
    answer = cheapest_in_phases(PhasedJob((1000,), (FAST, CHEAP)), deadline=2200)
    assert answer.single is not None and answer.two_phase is not None
    assert answer.single.usd == pytest.approx(10.0)
    assert answer.two_phase.seconds == pytest.approx(2200)
    assert answer.two_phase.usd == pytest.approx(6.0 + 1.6)
    assert answer.saved_usd == pytest.approx(2.4)
    assert answer.saved_seconds == pytest.approx(-1200)
    assert answer.best is answer.two_phase


def test_a_hand_over_that_eats_the_gain_leaves_one_phase() -> None:
    answer = cheapest_in_phases(PhasedJob((1000,), (FAST, CHEAP), HandOver(usd=2.5)), deadline=2200)
    assert answer.two_phase is None
    assert answer.saved_usd is None
    assert answer.best is answer.single


def test_without_limits_one_offer_is_best_where_steps_are_equal() -> None:
    job = PhasedJob((1000,), (FAST, CHEAP))
    assert cheapest_in_phases(job).two_phase is None
    assert fastest_in_phases(job).two_phase is None


def test_the_switch_falls_where_the_stages_part() -> None:
    """The small offer wins the steep stage, the large batch of the other the flat one: no limit needed."""
    small, large = replace(CHEAP, step_seconds=(1.0, 1.0)), replace(FAST, step_seconds=(1.5, 0.05))
    plan = cheapest_in_phases(PhasedJob((300, 700), (small, large))).two_phase
    assert plan is not None
    assert [phase.runner.name for phase in plan.phases] == ["cheap", "fast"]
    assert plan.phases[0].last_step == plan.phases[1].first_step == 300


def test_the_front_falls_as_deadlines_grow() -> None:
    job = PhasedJob((1000,), (FAST, CHEAP), HandOver(write_seconds=5, restart_seconds=30, usd=0.1))
    deadlines = np.linspace(900, 4200, 12).tolist()
    front = [cheapest_in_phases(job, deadline) for deadline in deadlines]
    assert front[0].best is None
    money = [answer.best.usd for answer in front if answer.best is not None]
    assert money == sorted(money, reverse=True)


def test_runners_that_another_makes_needless_are_not_paired() -> None:
    """Dearer, slower to start, the same again; but a slower one that is cheaper counts, as do other units."""
    runners = (
        FAST,
        replace(FAST, usd_per_hour=37.0),
        replace(FAST, start_seconds=1.0),
        FAST,
        CHEAP,
        replace(FAST, terms=terms(60.0)),
        replace(FAST, step_seconds=(1.1,), usd_per_hour=36.5, terms=terms(60.0)),
    )
    assert worth_pairing(runners) == (0, 4, 5)


@pytest.mark.parametrize("seed", range(20))
def test_leaving_out_needless_runners_changes_no_optimum(seed: int) -> None:
    job = long_job(seed)
    worse = tuple(replace(r, usd_per_hour=r.usd_per_hour * 1.01) for r in job.runners)
    same_for_all = PhasedJob(job.stage_steps, (*worse, *job.runners), HandOver(9.0, 5.0, 20.0, 0.01))
    assert len(worth_pairing(same_for_all.runners)) <= 4
    seconds, usd = all_switches(same_for_all)
    deadline, budget = float(np.quantile(seconds, 0.3)), float(np.quantile(usd, 0.3))
    deadline, budget = deadline * (1 + 1e-7), budget * (1 + 1e-7)
    cheapest, fastest = cheapest_in_phases(same_for_all, deadline), fastest_in_phases(same_for_all, budget)
    check_least(cheapest, attrgetter("usd"), usd[seconds <= deadline].min())
    check_least(fastest, attrgetter("seconds"), seconds[usd <= budget].min())


def test_one_offer_alone_has_one_phase() -> None:
    answer = cheapest_in_phases(PhasedJob((10,), (FAST,)))
    assert answer.single is not None and answer.two_phase is None


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=20),
    st.sampled_from([0.0, 1.0, 36.0, 60.0, 3600.0]),
    st.sampled_from([0.0, 60.0, 600.0]),
)
def test_many_bills_are_as_one(seconds: list[float], granularity: float, minimum: float) -> None:
    times = np.array([*seconds, 2412.0000000000005, 0.0])
    billed = billed_seconds_each(times, np.array(granularity), np.array(minimum))
    assert billed.tolist() == [billed_seconds(float(time), terms(granularity, minimum)) for time in times]


def test_nonsense_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="step times must be above 0"):
        Runner("x", (0.0,), 1.0, terms())
    with pytest.raises(InvalidRequest, match="stages"):
        PhasedJob((1, 2), (FAST,))
    with pytest.raises(InvalidRequest, match="at least one"):
        PhasedJob((1,), ())
    with pytest.raises(InvalidRequest, match="2 x 2"):
        cheapest_in_phases(PhasedJob((9,), (FAST, CHEAP), HandOver(usd=np.zeros((3, 3)))))
    with pytest.raises(InvalidRequest, match="switch after 1 to 9"):
        plan_in_phases(PhasedJob((10,), (FAST, CHEAP)), 0, 1, 10)
