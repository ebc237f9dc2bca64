"""Rent or buy: the figures of published slides, then conservation and monotonicity."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrain.errors import InvalidRequest
from foretrain.planning.rent_or_buy import RentOrBuyTerms, rent_or_buy

SLIDES = RentOrBuyTerms(price_usd=8000, rent_usd_per_hour=1.5)


def test_the_slides_standard_machine() -> None:
    answer = rent_or_buy(SLIDES)
    assert answer.break_even_hours == pytest.approx(8000 / 1.5)
    assert answer.break_even_years == pytest.approx(5333.33 / 2000, rel=1e-5)


def test_the_slides_machine_adjusted_for_30_percent_performance() -> None:
    answer = rent_or_buy(replace(SLIDES, relative_performance=0.7))
    assert answer.break_even_hours == pytest.approx(5600 / 1.5)
    assert answer.break_even_years == pytest.approx(1.867, abs=1e-3)
    assert answer.rented_hours_for_the_same_work == pytest.approx(8000 / 1.5)


def test_electricity_lowers_what_an_owned_hour_saves() -> None:
    # 1000 W x 1.5 PUE x $0.20/kWh = $0.30/h, so an hour saves 1.50 - 0.30 = 1.20
    answer = rent_or_buy(replace(SLIDES, watts=1000, pue=1.5, usd_per_kwh=0.2))
    assert answer.electricity_usd_per_hour == pytest.approx(0.3)
    assert answer.break_even_hours == pytest.approx(8000 / 1.2)


def test_hosting_is_paid_by_the_year() -> None:
    # 2000 h x $1.50 - $1000 hosting = $2000 saved a year: 4 years
    assert rent_or_buy(replace(SLIDES, hosting_usd_per_year=1000)).break_even_years == pytest.approx(4)


def test_resale_lowers_the_price_and_sets_the_lifetime() -> None:
    answer = rent_or_buy(replace(SLIDES, resale_usd=2000, resale_after_years=3))
    assert answer.net_price_usd == 6000
    assert answer.break_even_hours == pytest.approx(4000)
    assert answer.verdict.startswith("buy")
    assert rent_or_buy(replace(SLIDES, resale_usd=200, resale_after_years=2)).verdict.startswith("rent")


def test_what_is_saved_until_the_machine_is_sold() -> None:
    # 3 years x 2000 h x $1.50 = $9000 of rent, against $8000 less $2000 of resale: $3000 saved
    answer = rent_or_buy(replace(SLIDES, resale_usd=2000, resale_after_years=3))
    assert answer.saved_usd == pytest.approx(3000)
    assert answer.verdict == (
        "buy: over 3 years owning saves $3,000; owning pays for itself after 4,000 h (2.0 years)"
    )
    # kept for 2 years without resale: $6000 of rent against $8000
    short = rent_or_buy(replace(SLIDES, resale_after_years=2))
    assert short.saved_usd == pytest.approx(-2000)
    assert short.verdict.startswith("rent: over 2 years renting saves $2,000; owning pays for itself after")
    assert rent_or_buy(SLIDES).saved_usd is None
    full = answer.by_utilisation[-1]
    assert full.saved_usd == pytest.approx(3 * full.hours_per_year * 1.5 - 6000)


def test_what_is_saved_is_nothing_at_the_break_even() -> None:
    terms = replace(SLIDES, discount_rate=0.08, hosting_usd_per_year=300, watts=500, usd_per_kwh=0.2)
    years = rent_or_buy(terms).break_even_years
    assert years is not None
    at_break_even = rent_or_buy(replace(terms, resale_after_years=years))
    assert at_break_even.saved_usd == pytest.approx(0, abs=1e-6)


def test_discounting_by_hand() -> None:
    # A(t) = 8000 / 3000; at 10 %: t = -ln(1 - A ln 1.1) / ln 1.1
    growth = math.log(1.1)
    expected = -math.log(1 - 8000 / 3000 * growth) / growth
    assert rent_or_buy(replace(SLIDES, discount_rate=0.10)).break_even_years == pytest.approx(expected)


def test_never_when_electricity_alone_costs_more_than_rent() -> None:
    answer = rent_or_buy(replace(SLIDES, watts=10_000, usd_per_kwh=0.2))
    assert answer.break_even_hours is None
    assert "never" in answer.verdict


def test_never_when_money_is_too_dear() -> None:
    assert rent_or_buy(replace(SLIDES, discount_rate=2.0)).break_even_years is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"price_usd": -1}, "price_usd must be above 0"),
        ({"rent_usd_per_hour": 0}, "rent_usd_per_hour must be above 0"),
        ({"pue": 0.9}, "at least 1"),
        ({"hours_per_year": 9000}, "a year has 8760 h"),
        ({"resale_usd": 9000, "resale_after_years": 1}, "above the price"),
        ({"resale_usd": 10}, "requires `resale_after`"),
        ({"usd_per_kwh": -0.1}, "must not be negative"),
        ({"discount_rate": math.nan}, "must not be negative"),
    ],
)
def test_nonsense_is_refused(change: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        replace(SLIDES, **change)


positive = st.floats(min_value=0.01, max_value=1e6)
requests = st.builds(
    RentOrBuyTerms,
    price_usd=positive,
    rent_usd_per_hour=st.floats(0.01, 100),
    relative_performance=st.floats(0.05, 5),
    hours_per_year=st.floats(1, 8760),
    watts=st.floats(0, 10_000),
    usd_per_kwh=st.floats(0, 1),
    pue=st.floats(1, 3),
    hosting_usd_per_year=st.floats(0, 10_000),
    discount_rate=st.floats(0, 0.3),
)


@given(requests)
def test_the_curves_cross_at_break_even(request_: RentOrBuyTerms) -> None:
    answer = rent_or_buy(request_)
    gaps = [own - rent for own, rent in zip(answer.curves.own_usd, answer.curves.rent_usd, strict=True)]
    assert gaps[0] == pytest.approx(answer.net_price_usd)
    if answer.break_even_hours is None:
        return
    middle = len(gaps) // 2
    assert answer.curves.hours[middle] == pytest.approx(answer.break_even_hours, rel=1e-6)
    assert gaps[middle] == pytest.approx(0, abs=1e-6 * max(answer.curves.rent_usd[middle], 1))


@given(requests, st.floats(1.01, 10))
def test_a_dearer_machine_never_pays_off_sooner(request_: RentOrBuyTerms, factor: float) -> None:
    cheap = rent_or_buy(request_).break_even_hours
    dear = rent_or_buy(replace(request_, price_usd=request_.price_usd * factor)).break_even_hours
    if dear is not None:
        assert cheap is not None
        assert cheap < dear


@given(requests)
def test_more_use_never_takes_more_years(request_: RentOrBuyTerms) -> None:
    years = [row.years if row.years is not None else math.inf for row in rent_or_buy(request_).by_utilisation]
    assert years == sorted(years, reverse=True)
