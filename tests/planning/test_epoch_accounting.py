"""Sanghvi's accounting: table I, the cost of its two jobs, and its errors, as printed."""

import pytest

from foretrain.errors import InvalidRequest
from foretrain.planning.speedup import (
    TimeAndCost,
    at_hourly_price,
    scaling_efficiency,
    speedup,
)

P100_AS_PRINTED = TimeAndCost(48, 0.01947)
TWO_K80_AS_PRINTED = TimeAndCost(55, 0.01375)


@pytest.mark.parametrize(
    ("epochs", "epoch", "seconds", "usd"),
    [(94, P100_AS_PRINTED, 4512, 1.83018), (51, TWO_K80_AS_PRINTED, 2805, 0.70125)],
)
def test_the_papers_two_jobs(epochs: int, epoch: TimeAndCost, seconds: float, usd: float) -> None:
    assert epochs * epoch.seconds == seconds
    assert epochs * epoch.usd == pytest.approx(usd, abs=1e-9)


def test_unrounded_prices_give_the_printed_cost_to_a_tenth_of_a_cent() -> None:
    # 94 x 48 s at $1.46 an hour = 1.829867; the paper rounds the epoch to five decimals before multiplying
    assert 94 * at_hourly_price(48, 1.46).usd == pytest.approx(1.829867, abs=1e-6)


def test_scaling_of_two_k80() -> None:
    assert speedup(87, 55) == pytest.approx(1.5818, abs=1e-4)
    assert scaling_efficiency(87, 55, 2) == pytest.approx(0.7909, abs=1e-4)


def test_nonsense_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="above 0"):
        speedup(0, 1)
    with pytest.raises(InvalidRequest, match="at least 1"):
        scaling_efficiency(1, 1, 0)
