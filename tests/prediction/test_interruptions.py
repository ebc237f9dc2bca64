"""Rates of interruptions add up over machines and devices; counts of them are Poisson."""

import math

import pytest

from foretrain.errors import InvalidRequest
from foretrain.facts.running import FAILURES, SPOT_INTERRUPTIONS, default
from foretrain.jobs.interruptions import interruptions, poisson_quantile


def test_a_rate_given_is_for_each_machine() -> None:
    found = interruptions(devices=16, machines=2, spot=True, given_per_day=0.5)
    assert found.per_day.p10 == found.per_day.p50 == found.per_day.p90 == 1.0
    assert found.between_seconds == 86400


def test_failures_count_devices_and_spot_counts_machines_on_top() -> None:
    failing, taken = default(FAILURES).quantiles.p50, default(SPOT_INTERRUPTIONS).quantiles.p50
    assert interruptions(16, 2, False, None).per_day.p50 == pytest.approx(16 * failing)
    assert interruptions(16, 2, True, None).per_day.p50 == pytest.approx(16 * failing + 2 * taken)


def test_never_and_nonsense() -> None:
    assert math.isinf(interruptions(1, 1, False, 0.0).between_seconds)
    with pytest.raises(InvalidRequest, match="at least 0"):
        interruptions(1, 1, True, -1)


def test_poisson_by_hand() -> None:
    # mean 1: P(0) = 0.368, P(<=1) = 0.736, P(<=2) = 0.920
    assert [poisson_quantile(1.0, share) for share in (0.1, 0.5, 0.9)] == [0, 1, 2]
    assert poisson_quantile(0.01, 0.9) == 0
    assert poisson_quantile(10_000, 0.9) == pytest.approx(10_000 + 128.2, abs=0.1)
