"""A job on a heterogeneous cluster: rates, bills and energy add up over its groups."""

from dataclasses import replace

import pytest

from foretrain.estimates import Quantiles
from foretrain.facts.hardware import hardware
from foretrain.facts.running import FAILURES, POWER, default
from foretrain.jobs.job import RepeatedStep, Steps, job
from foretrain.jobs.options import JobOptions

SECOND = RepeatedStep(Quantiles(0.9, 1.0, 1.2), forward_seconds=0.25, global_batch=32, state_bytes=1e9)
STEPS = Steps(Quantiles(1000, 1000, 1000), "steps as given")
PLAIN = JobOptions(startup=100, checkpoint_every=500, interruptions_per_day=0)
T4S, V100 = hardware("t4:2x3"), hardware("v100-sxm2-16gb")
RENTED, OTHER = hardware("aws:g4dn.xlarge:2"), hardware("gcp:a2-highgpu-1g")


def test_two_groups_of_one_node_are_one_group_of_two() -> None:
    whole, node = job(SECOND, STEPS, (RENTED,), PLAIN), replace(RENTED, nodes=1)
    divided = job(SECOND, STEPS, (node, node), PLAIN)
    assert divided.seconds == whole.seconds
    assert divided.usd == whole.usd
    assert divided.kwh == pytest.approx(whole.kwh)
    assert divided.co2_kg == pytest.approx(whole.co2_kg)


def test_rates_add_up_over_all_devices_and_machines() -> None:
    # 6 T4s in 3 machines and one V100 in its own
    failing = job(SECOND, STEPS, (T4S, V100), replace(PLAIN, interruptions_per_day=None))
    assert failing.interruptions_per_day.p50 == pytest.approx(7 * default(FAILURES).quantiles.p50)
    given = job(SECOND, STEPS, (T4S, V100), replace(PLAIN, interruptions_per_day=0.5))
    assert given.interruptions_per_day.p50 == pytest.approx(4 * 0.5)


def test_energy_is_the_sum_over_groups() -> None:
    whole = job(SECOND, STEPS, (T4S, V100), replace(PLAIN, region="FRA"))
    apart = [
        job(SECOND, STEPS, (one,), replace(PLAIN, region="FRA")) for one in (T4S, V100)
    ]  # both as long as the job: nothing of it depends on the hardware
    assert whole.seconds == apart[0].seconds == apart[1].seconds
    assert whole.energy is not None
    assert whole.energy.watts == pytest.approx((6 * 70 + 300) * default(POWER).quantiles.p50)
    assert whole.kwh == pytest.approx(sum(one.kwh or 0 for one in apart))
    assert whole.energy.kwh.p90 == pytest.approx(sum(one.energy.kwh.p90 for one in apart if one.energy))
    assert whole.co2_kg == pytest.approx(sum(one.co2_kg or 0 for one in apart))
    assert apart[0].energy is not None
    assert whole.energy.grams_per_kwh == pytest.approx(apart[0].energy.grams_per_kwh)
    assert whole.energy.pue == pytest.approx(apart[0].energy.pue)


def test_bills_add_up_each_by_its_own_terms() -> None:
    whole = job(SECOND, STEPS, (RENTED, OTHER), PLAIN)
    apart = [job(SECOND, STEPS, (one,), PLAIN) for one in (RENTED, OTHER)]
    assert whole.usd is not None
    assert whole.price is not None
    assert whole.usd.p50 == pytest.approx(sum(one.usd.p50 for one in apart if one.usd))
    assert [price.machines for price in whole.price.each] == [2, 1]
    assert {price.offer.provider for price in whole.price.each if price.offer} == {"aws", "gcp"}
    # each where it is cheapest, so by its own grid and PUE
    assert whole.co2_kg == pytest.approx(sum(one.co2_kg or 0 for one in apart))
    factors = [one.energy.pue for one in apart if one.energy is not None]
    assert whole.energy is not None
    assert min(factors) < whole.energy.pue < max(factors)


def test_a_price_given_is_for_all() -> None:
    whole = job(SECOND, STEPS, (T4S, V100), replace(PLAIN, usd_per_hour=3.6))
    assert whole.usd is not None
    assert whole.usd.p50 == pytest.approx(whole.seconds.p50 / 1000)


def test_one_group_without_a_price_leaves_the_bill_open() -> None:
    whole = job(SECOND, STEPS, (RENTED, V100), PLAIN)
    assert whole.usd is None
    assert any(note.startswith("price unknown of v100-sxm2-16gb:") for note in whole.notes)
