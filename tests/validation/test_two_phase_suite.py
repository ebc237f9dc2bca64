"""The suite of two-phase plans: brute force tries everything, and critical batches are read by accuracy."""

import csv
import gzip
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from validation.convergence_runs import Run
from validation.two_phase_cases import Market, Network, PricedOffer, at_one_batch, at_own_batches, brute_force
from validation.two_phase_curves import Curve, critical_batches, stages_of, top_1
from validation.two_phase_suite import _figures, _outcomes, _run_on, deadlines

from foretrain.convergence.curves import MetricDirection, curve_of
from foretrain.facts.offers import offer_named
from foretrain.facts.providers import BillingTerms
from foretrain.facts.sheets import FactKind
from foretrain.planning.two_phases.phases import (
    HandOver,
    PhasedJob,
    Runner,
    cheapest_in_phases,
    plan_in_phases,
)


def runner(name: str, step_seconds: tuple[float, ...], usd_per_hour: float) -> Runner:
    return Runner(name, step_seconds, usd_per_hour, BillingTerms(60, 60, FactKind.ASSUMED, ""), 30.0)


RUNNERS = (
    runner("quick", (1.0, 1.0), 40.0),
    runner("slow", (8.0, 4.0), 4.0),
    runner("between", (3.0, 3.0), 14.0),
)
USD = np.array([[0.0, 0.1, 0.2], [0.0, 0.0, 0.3], [0.1, 0.1, 0.0]])
JOB = PhasedJob((70, 50), RUNNERS, HandOver(5.0, 7.0, 0.0, USD))


def test_brute_force_tries_every_pair_and_step() -> None:
    limits = (200.0, 400.0, 600.0)
    plans = [
        plan_in_phases(JOB, first, second, step)
        for first in range(3)
        for second in range(3)
        if first != second
        for step in range(1, JOB.steps)
    ]
    for limit, found in zip(limits, brute_force(JOB, limits), strict=True):
        expected = min((plan.usd for plan in plans if plan.seconds <= limit), default=math.inf)
        assert found == pytest.approx(expected)
    at_70 = [plan for plan in plans if plan.phases[0].last_step == 70 and plan.seconds <= 400]
    assert brute_force(JOB, (400.0,), at_step=70)[0] == pytest.approx(min(plan.usd for plan in at_70))


def test_nothing_is_in_time_before_the_quickest() -> None:
    assert brute_force(JOB, (100.0,)) == (math.inf,)


def test_deadlines_lie_between_the_quickest_offer_and_the_cheapest() -> None:
    found = deadlines(JOB)
    cheapest = cheapest_in_phases(JOB).single
    assert cheapest is not None
    assert min(found) > 150
    assert max(found) < cheapest.seconds


def test_a_plan_is_run_on_a_job_of_another_length() -> None:
    plan = plan_in_phases(JOB, 0, 1, 40)
    longer = PhasedJob((70, 60), RUNNERS, JOB.hand_over)
    again = _run_on(longer, plan)
    assert [phase.last_step for phase in again.phases] == [40, 130]
    assert again.seconds == pytest.approx(plan.seconds + 10 * 4.0)
    over = _run_on(PhasedJob((20, 10), RUNNERS, JOB.hand_over), plan)  # ends before the switch
    assert [phase.runner.name for phase in over.phases] == ["quick"]
    assert over.seconds == 60.0


def test_larger_batches_are_worth_less_where_the_critical_batch_is_small() -> None:
    network = Network("resnet50", 10_240, 1024)
    offer = offer_named("aws:p4d.24xlarge")
    market = Market("aws", network, (PricedOffer(offer, 2.0, 1024, 2.0),), 0.0)
    assert at_one_batch(market, 3.0).stage_steps == (30,)
    small = Market("aws", network, (PricedOffer(offer, 2.0, 128, 0.25),), 0.0)
    early, late = at_own_batches(small, ((1.0, 128.0), (2.0, 1e6))).runners[0].step_seconds
    assert early == pytest.approx(0.25 * 2 / (1 + 128 / 1024))
    assert late == pytest.approx(0.25 * 8, rel=0.01)


def test_figures_list_every_deadline_of_the_best_case() -> None:
    quick, slow = (replace(one, step_seconds=(sum(one.step_seconds),)) for one in RUNNERS[:2])
    job = PhasedJob((1200,), (quick, slow), HandOver(5.0, 7.0))
    market = Market("aws", Network("resnet50", 10_240, 1024), (), 0.0)
    outcomes = []
    for name in ("who_a", "who_b"):
        epochs = np.arange(1.0, 11.0 + (name == "who_b"))
        curve = curve_of(epochs, 94 - 60 / epochs, "accuracy", MetricDirection.UP, name, name)
        item = Curve(Run("ImageNet", curve, 80.0), market.network, 3.0)
        found = _outcomes(item, market, job)
        outcomes += [replace(outcome, batches={"quick": 1024, "slow": 128}) for outcome in found]
    assert max(outcome.error for outcome in outcomes) < 1e-12
    search, wins, sweep = _figures("one batch", outcomes)
    assert "largest difference" in search
    assert "win 10 of 10 cases" in wins
    assert "quick up to epoch" in wins
    assert sweep.count("moving at epoch") == 5


def test_critical_batches_are_read_at_an_accuracy(tmp_path: Path) -> None:
    (tmp_path / "sia").mkdir()
    with gzip.open(tmp_path / "sia" / "validation_curves.csv.gz", "wt", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["model", "batch", "progress", "iteration", "metric", "grad_sqr", "grad_var"])
        rows.writerow(["imagenet", 200, 1, 1, 0.2, 1.0, 5.0])
        rows.writerow(["imagenet", 200, 2, 2, 0.1, 1.0, 9.0])  # fell back: not counted
        rows.writerow(["imagenet", 200, 3, 3, 0.6, 1.0, 25.0])
        rows.writerow(["imagenet", 400, 3, 3, 0.6, 1.0, 99.0])
    critical = critical_batches(tmp_path, "ImageNet")
    assert critical.at(20.0) == 1000.0
    assert critical.at(40.0) == 3000.0
    assert critical.at(90.0) == 5000.0
    curve = (np.array([1.0, 2.0]), np.array([20.0, 60.0]))
    assert stages_of(2.0, curve, critical, 2) == ((1.0, 1000.0), (1.0, 3000.0))


def test_logs_that_count_from_zero_are_put_one_later(tmp_path: Path) -> None:
    (tmp_path / "dawnbench").mkdir()
    text = "task,entry,epoch,hours,m1,m2\nImageNet,a,0,0.1,10,\nImageNet,a,1,0.2,30,\nImageNet,a,2,0.3,20,\n"
    (tmp_path / "dawnbench" / "train_curves.csv").write_text(text)
    epochs, best = top_1(tmp_path, "ImageNet")["a"]
    assert epochs.tolist() == [1, 2, 3]
    assert best.tolist() == [10, 30, 30]
