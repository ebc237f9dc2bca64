"""Sanghvi's table I and its Δ, checked against the printed figures."""

import pytest

from foretrain.errors import InvalidRequest
from foretrain.planning.speedup import TimeAndCost, at_hourly_price, speedup_per_fold_of_cost

K80 = at_hourly_price(87, 0.45)
TWO_K80 = at_hourly_price(55, 0.90)
P100 = at_hourly_price(48, 1.46)


@pytest.mark.parametrize(("epoch", "printed"), [(K80, 0.01088), (TWO_K80, 0.01375), (P100, 0.01947)])
def test_table_one_dollars_per_epoch(epoch: TimeAndCost, printed: float) -> None:
    assert epoch.usd == pytest.approx(printed, abs=0.5e-5 + 1e-12)  # half a unit of the last printed digit


def test_two_k80_buy_more_speed_than_they_cost() -> None:
    # 87/55 = 1.582 times as fast for 0.01375/0.010875 = 1.264 times the money
    assert speedup_per_fold_of_cost(K80, TWO_K80) == pytest.approx(1.5818 / 1.2644, rel=1e-3)


def test_p100_is_barely_worth_it() -> None:
    # 87/48 = 1.8125 times as fast for 0.0194667/0.010875 = 1.790 times the money
    assert speedup_per_fold_of_cost(K80, P100) == pytest.approx(1.0125, rel=1e-3)


def test_an_offer_against_itself_is_even() -> None:
    assert speedup_per_fold_of_cost(P100, P100) == 1


def test_free_or_instant_work_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="above 0"):
        TimeAndCost(0, 1)
