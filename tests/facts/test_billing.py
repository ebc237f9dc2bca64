"""Bills a reader can recompute: rounding up to a granularity, minimum charges, Lambda's real bill lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrain.errors import InvalidRequest
from foretrain.facts.providers import UNKNOWN_TERMS, BillingTerms, billed_seconds, billed_usd, providers
from foretrain.facts.sheets import FactKind
from foretrain.units import HOUR


def terms(granularity_seconds: float, minimum_seconds: float = 0.0) -> BillingTerms:
    return BillingTerms(granularity_seconds, minimum_seconds, FactKind.ASSUMED, "test")


@pytest.mark.parametrize(
    ("hours", "usd"),
    [(0.67, 1.01), (1.28, 1.92), (0.75, 1.12), (0.97, 1.45), (1.31, 1.96), (0.86, 1.30)],
)
def test_lambda_bill_lines_of_2019_to_the_cent(hours: float, usd: float) -> None:
    historic = providers()["lambda"].billing_terms("gpu.4x", historical=True)
    assert historic.granularity_seconds == 36
    bill = billed_usd(hours * HOUR, 1.50, historic)
    assert abs(bill - usd) <= 0.01 + 1e-9
    # A second less is still billed as the same hundredth of an hour; a second more is the next one.
    assert billed_usd(hours * HOUR - 1, 1.50, historic) == pytest.approx(bill)
    assert billed_usd(hours * HOUR + 1, 1.50, historic) == pytest.approx(bill + 0.015)


@pytest.mark.parametrize(
    ("seconds", "granularity", "minimum", "billed"),
    [
        (0, 60, 60, 0),
        (1, 1, 60, 60),
        (60, 1, 60, 60),
        (61, 1, 60, 61),
        (61, 60, 0, 120),
        (3600, 3600, 0, 3600),
        (3601, 3600, 0, 7200),
        (10, 3600, 60, 3600),
        (12.5, 0, 0, 12.5),
        (12.5, 0, 60, 60),
    ],
)
def test_billed_seconds(seconds: float, granularity: float, minimum: float, billed: float) -> None:
    assert billed_seconds(seconds, terms(granularity, minimum)) == billed


def test_half_an_hour_billed_by_the_hour_costs_a_whole_one() -> None:
    assert billed_usd(1800, 4.0, terms(3600)) == 4.0
    assert billed_usd(1800, 4.0, terms(1)) == 2.0


@given(
    seconds=st.floats(0, 1e7),
    more=st.floats(0, 1e5),
    granularity=st.sampled_from([0.0, 1.0, 36.0, 60.0, 3600.0]),
    minimum=st.sampled_from([0.0, 60.0, 3600.0]),
)
def test_bills_cover_the_time_never_shrink_and_overshoot_by_less_than_a_unit(
    seconds: float, more: float, granularity: float, minimum: float
) -> None:
    agreed = terms(granularity, minimum)
    billed = billed_seconds(seconds, agreed)
    slack = 1e-6 * max(granularity, 1.0)
    assert billed >= seconds - slack
    assert billed <= max(seconds, minimum) + granularity + slack
    assert billed_seconds(seconds + more, agreed) >= billed


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_impossible_times_are_refused(seconds: float) -> None:
    with pytest.raises(InvalidRequest, match="cannot bill"):
        billed_usd(seconds, 1.0, terms(1))


@pytest.mark.parametrize("price", [-1.0, float("nan"), float("inf")])
def test_impossible_prices_are_refused(price: float) -> None:
    with pytest.raises(InvalidRequest, match="cannot bill at"):
        billed_usd(1.0, price, terms(1))


def test_impossible_terms_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="granularity_seconds must be"):
        terms(-1)


def test_terms_depend_on_the_instance() -> None:
    oracle = providers()["oci"]
    assert oracle.billing_terms("BM.GPU4.8").minimum_seconds == 3600
    assert oracle.billing_terms("VM.GPU3.1").minimum_seconds == 60


def test_lambda_bills_by_the_minute_today() -> None:
    assert providers()["lambda"].billing_terms("gpu_8x_a100").granularity_seconds == 60


def test_unknown_terms_are_marked_as_assumed() -> None:
    assert providers()["in-house"].billing_terms("server-1") is UNKNOWN_TERMS
    assert UNKNOWN_TERMS.kind is FactKind.ASSUMED
    assert billed_usd(90, 40.0, UNKNOWN_TERMS) == 1.0
