"""A job by hand: parts that sum, intervals by source, bills by terms, energy."""

import math
from dataclasses import replace

import pytest

from foretrain.errors import InvalidRequest, UnknownName
from foretrain.estimates import Part, Quantiles
from foretrain.facts.hardware import hardware
from foretrain.facts.providers import BillingTerms
from foretrain.facts.running import CHECKPOINT_FIXED, POWER, default
from foretrain.facts.sheets import FactKind
from foretrain.jobs.bill import Price, price_of
from foretrain.jobs.job import (
    PERHAPS,
    STEP_TIME,
    TRAINING,
    RepeatedStep,
    Steps,
    evaluate_each_epoch,
    job,
    uncertainty,
)
from foretrain.jobs.options import JobOptions

SECOND = RepeatedStep(Quantiles(0.9, 1.0, 1.2), forward_seconds=0.25, global_batch=32, state_bytes=1e9)
PLAIN = JobOptions(
    startup=100,
    checkpoint_rate=1e8,
    checkpoint_fixed_seconds=0,
    checkpoint_every=500,
    interruptions_per_day=0,
)
T4 = hardware("t4")


def exactly(steps: float) -> Steps:
    return Steps(Quantiles(steps, steps, steps), "steps as given")


def test_a_job_by_hand() -> None:
    # 100 s start-up + 1,000 steps of 1 s + 2 checkpoints of 1 GB at 100 MB/s
    whole = job(SECOND, exactly(1000), (T4,), PLAIN)
    assert {part.name: part.seconds for part in whole.parts} == {
        "start-up": 100,
        "training": 1000,
        "checkpoints": 20,
    }
    assert whole.seconds == Quantiles(1020, 1120, 1320)  # only the step is in doubt: -100 and +200
    assert (whole.saving.every_steps, whole.saving.times, whole.saving.seconds_each) == (500, 2, 10)
    assert [one.source for one in whole.uncertainty] == [STEP_TIME]


def test_a_checkpoint_takes_a_fixed_time_and_its_bytes() -> None:
    whole = job(SECOND, exactly(1000), (T4,), replace(PLAIN, checkpoint_fixed_seconds=3))
    assert whole.saving.seconds_each == 13  # 3 s and 1 GB at 100 MB/s
    assumed = job(SECOND, exactly(1000), (T4,), replace(PLAIN, checkpoint_fixed_seconds=None))
    assert assumed.saving.seconds_each == 10 + default(CHECKPOINT_FIXED).quantiles.p50
    assert assumed.uncertainty[-1].source == "time of a checkpoint, rate as given"


def test_parts_sum_with_everything_in_it() -> None:
    running = JobOptions(spot=True, eval_samples=1000, eval_every=10_000)
    whole = job(SECOND, Steps(Quantiles(5e4, 1e5, 3e5), "steps until loss=1"), (T4,), running)
    assert math.fsum(part.seconds for part in whole.parts) == pytest.approx(whole.seconds.p50)
    assert {part.name for part in whole.parts} == {
        "start-up", "training", "training that may be needed", "evaluation", "checkpoints",
        "work done again", "restarts",
    }  # fmt: skip
    # 100,000 steps / 10,000 = 10 evaluations of ceil(1000 / 32) = 32 forward passes of 0.25 s
    assert next(part.seconds for part in whole.parts if part.name == "evaluation") == pytest.approx(80)
    assert whole.uncertainty[0].source == "steps until loss=1"


def test_steps_and_step_both_in_doubt() -> None:
    steps = Steps(Quantiles(800, 1000, 1500), "steps until loss=1")
    whole = job(SECOND, steps, (T4,), replace(PLAIN, startup=0))
    by_name = {part.name: part for part in whole.parts}
    assert (by_name[TRAINING].seconds, by_name[PERHAPS].seconds) == (800, 200)
    # step: 1,000 x (0.1, 0.2); steps: 1 s x (200, 500); independent
    assert whole.seconds.p50 - whole.seconds.p10 == pytest.approx(math.hypot(100, 200))
    assert whole.seconds.p90 - whole.seconds.p50 == pytest.approx(math.hypot(200, 500))


def test_one_source_errs_together() -> None:
    parts = [Part("a", 10, "x", 1, 2), Part("b", 10, "x", 2, 3), Part("c", 10, "y", 1, 1), Part("d", 1, "z")]
    (first, second) = uncertainty(parts)
    assert (first.source, first.below_seconds, first.above_seconds) == ("x", 3, 5)
    assert second.source == "y"


def test_more_interruptions_take_longer_and_widen() -> None:
    calm, rough = (
        job(SECOND, exactly(1e5), (T4,), JobOptions(startup=60, interruptions_per_day=rate))
        for rate in (0.1, 10.0)
    )
    assert calm.seconds.p50 < rough.seconds.p50
    assert calm.saving.every_seconds > rough.saving.every_seconds
    assert rough.interruptions == pytest.approx(10 * rough.seconds.p50 / 86400, rel=0.05)


def test_the_price_given_is_for_all_machines_and_exact() -> None:
    whole = job(SECOND, exactly(1000), (T4,), replace(PLAIN, usd_per_hour=3.6))
    assert whole.usd is not None
    assert whole.usd.p50 == pytest.approx(1.12)
    assert any("exact time" in note for note in whole.notes)


def test_bills_round_up_for_each_machine() -> None:
    hourly = BillingTerms(3600, 0, FactKind.SPEC, "x")
    price = Price(2.0, 3, hourly, False, "x")
    assert price.bill(Quantiles(10, 3601, 7200)) == Quantiles(6, 12, 12)


def test_an_offer_costs_by_its_nodes_and_less_on_spot() -> None:
    two = hardware("aws:p4d.24xlarge:2")
    on_demand, spot = price_of(two, False, None, None), price_of(two, True, None, None)
    assert on_demand is not None
    assert spot is not None
    assert on_demand.machines == spot.machines == 2
    assert spot.usd_per_machine_hour < on_demand.usd_per_machine_hour
    assert two.offer is not None
    assert on_demand.usd(3600) == pytest.approx(2 * two.offer.usd_per_hour)
    with pytest.raises(UnknownName, match="region"):
        price_of(two, False, None, "atlantis")


def test_no_price_no_place() -> None:
    whole = job(SECOND, exactly(1000), (T4,), PLAIN)
    assert whole.usd is None
    assert whole.co2_kg is None
    assert any("price unknown" in note for note in whole.notes)
    assert any("`region`" in note for note in whole.notes)


def test_energy_by_hand() -> None:
    # a T4 of 70 W, 1.25 times that for the machine, industry PUE 1.56, over 1,120 s
    whole = job(SECOND, exactly(1000), (T4,), replace(PLAIN, region="FRA"))
    share = default(POWER).quantiles.p50
    assert whole.kwh is not None
    assert whole.kwh == pytest.approx(70 * share * 1.56 * 1120 / 3.6e6)
    assert whole.energy is not None
    assert whole.energy.grams_per_kwh is not None
    assert whole.co2_kg == pytest.approx(whole.kwh * whole.energy.grams_per_kwh / 1000)
    assert whole.energy.kwh.p10 < whole.kwh < whole.energy.kwh.p90


def test_an_unknown_region_is_refused() -> None:
    with pytest.raises(UnknownName, match="atlantis"):
        job(SECOND, exactly(1000), (T4,), replace(PLAIN, region="atlantis"))


def test_saving_all_the_time_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="checkpoints must be more than 0 s of work apart"):
        job(SECOND, exactly(1000), (T4,), replace(PLAIN, checkpoint_every=0))


def test_evaluated_once_an_epoch_by_default() -> None:
    asked = JobOptions(eval_samples=100)
    assert evaluate_each_epoch(asked, 1000, 32).eval_every == 32  # ceil(1000 / 32)
    assert evaluate_each_epoch(replace(asked, eval_every=5), 1000, 32).eval_every == 5
    assert evaluate_each_epoch(JobOptions(), 1000, 32) == JobOptions()


@pytest.mark.parametrize(
    "options",
    [{"checkpoint_rate": 0.0}, {"eval_samples": 0}, {"eval_every": 0}],
)
def test_nonsense_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(InvalidRequest, match=r"at least 1|above 0"):
        JobOptions(**options)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="at least 1"):
        exactly(0)
    with pytest.raises(InvalidRequest, match="finite"):
        Steps(Quantiles(1, 2, math.inf), "never")
