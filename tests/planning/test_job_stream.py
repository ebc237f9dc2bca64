"""Rent or buy for a stream of jobs, by hand."""

import math
from typing import Any

import pytest

from foretrain.errors import InvalidRequest, MissingData
from foretrain.estimates import Quantiles
from foretrain.facts.hardware import hardware
from foretrain.facts.running import POWER, default
from foretrain.planning.options import OwningOptions
from foretrain.planning.rent_or_buy import JobStream, rent_or_buy_for_jobs

HOUR = 3600.0
TEN_HOURS = Quantiles(5 * HOUR, 10 * HOUR, 20 * HOUR)


def for_jobs(
    machines: str = "t4:2",
    seconds: Quantiles = TEN_HOURS,
    rent: float = 2.0,
    jobs: float = 100,
    price: float | None = 8000.0,
    usd_per_kwh: float | None = None,
    **terms: float,
) -> JobStream:
    owning = OwningOptions(jobs_per_year=jobs, buy_price=price, usd_per_kwh=usd_per_kwh)
    return rent_or_buy_for_jobs(owning, hardware(machines), seconds, rent, **terms)


def test_a_stream_by_hand() -> None:
    # 100 jobs of 10 h: 1,000 h and $2,000 a year against $8,000: 4 years, 400 jobs
    answer = for_jobs()
    assert answer.hours_per_year == Quantiles(500, 1000, 2000)
    assert answer.rent_usd_per_year == Quantiles(1000, 2000, 4000)
    assert (answer.sets, answer.machines) == (1, 1)
    assert answer.break_even_years == Quantiles(2, 4, 8)  # jobs twice as long pay it back twice as fast
    assert answer.break_even_jobs == pytest.approx(400)
    assert answer.utilisation == pytest.approx(1000 / 8760, rel=1e-3)
    assert "4.0 years (400 jobs)" in answer.verdict
    assert not answer.devices_only
    assert answer.watts == 0
    assert any("electricity" in note for note in answer.notes)


def test_more_than_a_years_hours_take_more_sets() -> None:
    # 2,000 jobs of 10 h: 20,000 h a year, 3 sets of 6,667 h each: $8,000 / ($2 x 6,667 h) = 0.6 years
    answer = for_jobs(jobs=2000)
    assert answer.sets == 3
    assert answer.by_set.request.hours_per_year == pytest.approx(20_000 / 3)
    assert answer.break_even_years.p50 == pytest.approx(0.6)
    # the jobs of p90 do not fit into 3 sets, which are then in use all year: 8,000 / (2 x 8,766)
    assert answer.break_even_years.p10 == pytest.approx(8000 / (2 * 8766), rel=1e-3)
    assert any("5 sets" in note for note in answer.notes)
    assert "3 sets of t4:2 for 24,000 USD" in answer.verdict
    assert for_jobs("t4:1x4").machines == 4


def test_an_owned_machine_that_is_faster_needs_fewer_hours() -> None:
    # a rented hour does half of the work: 500 h a year owned, each of them worth $4 of rent
    answer = for_jobs(relative_performance=0.5)
    assert answer.hours_per_year.p50 == pytest.approx(500)
    assert answer.rent_usd_per_year.p50 == pytest.approx(2000)
    assert answer.break_even_years.p50 == pytest.approx(4)


def test_electricity_by_hand() -> None:
    # two T4s of 70 W, times what a machine draws over them, at 1 USD a kWh
    answer = for_jobs(usd_per_kwh=1.0, pue=1.5)
    watts = 140 * default(POWER).quantiles.p50
    assert answer.watts == pytest.approx(watts)
    assert answer.break_even_years.p50 == pytest.approx(8000 / (1000 * (2 - watts / 1000 * 1.5)))
    assert not any("electricity" in note for note in answer.notes)
    never = for_jobs(usd_per_kwh=20.0)
    assert never.break_even_years == Quantiles(math.inf, math.inf, math.inf)
    assert never.break_even_jobs is None
    assert "never" in never.verdict


def test_owning_may_pay_for_long_jobs_only() -> None:
    # hosting of $1,500 a year: jobs of p10 save $1,000 of rent, and never pay for it
    answer = for_jobs(hosting_usd_per_year=1500)
    assert answer.break_even_years == Quantiles(8000 / 2500, 8000 / 500, math.inf)


def test_sold_before_it_has_paid_for_itself() -> None:
    answer = for_jobs(resale_usd=1000, resale_after_years=2)
    assert answer.break_even_years.p50 == pytest.approx(3.5)
    assert answer.verdict.startswith("rent: over 2 years renting saves $3,000; ")


def test_list_prices_are_of_devices_only() -> None:
    answer = for_jobs("rtx4090:4", price=None)
    assert answer.price_usd == 4 * 1599
    assert answer.devices_only
    assert "4 x rtx4090 at 1,599 USD" in answer.price_source
    assert any("devices only" in note for note in answer.notes)
    with pytest.raises(MissingData, match="h100-sxm is unknown: give the price of all machines"):
        for_jobs("h100-sxm:8", price=None)


@pytest.mark.parametrize(
    "change",
    [{"jobs": 0}, {"jobs": math.nan}, {"seconds": Quantiles(0, 0, 1)}],
)
def test_nonsense_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="must be finite and above 0"):
        for_jobs(**change)
    with pytest.raises(InvalidRequest, match="rent_usd_per_hour"):
        for_jobs(rent=0)
