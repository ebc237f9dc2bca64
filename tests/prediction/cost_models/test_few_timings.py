"""Corrections by a few timings: what they say where nothing, one thing or everything is known."""

from __future__ import annotations

import math

import pytest

from foretrain.errors import InvalidRequest
from foretrain.prediction.cost_models.few_timings import Spreads, TimedSize, corrected, spreads

_SURE = Spreads(level=1.0, slope=0.0, wander=0.0, noise=1e-6)


def test_one_timing_scales_the_prediction_by_what_it_was_off() -> None:
    quantiles = corrected([TimedSize(16, 1.0, 2.0)], 64, 5.0, _SURE)
    assert quantiles.p50 == pytest.approx(10.0, rel=1e-5)


def test_a_timed_size_is_predicted_as_it_was_measured() -> None:
    timings = [TimedSize(16, 1.0, 1.5), TimedSize(32, 2.0, 2.4)]
    quantiles = corrected(timings, 32, 2.0, Spreads(1.0, 0.1, 0.1, 1e-6))
    assert quantiles.p50 == pytest.approx(2.4, rel=1e-4)


def test_a_slope_is_drawn_on_where_only_a_slope_can_be() -> None:
    timings = [TimedSize(1, 1.0, 1.0), TimedSize(2, 1.0, 1.1)]
    quantiles = corrected(timings, 4, 1.0, Spreads(level=1.0, slope=1.0, wander=0.0, noise=1e-6))
    assert quantiles.p50 == pytest.approx(1.21, rel=1e-4)


def test_the_walk_stays_where_the_last_timing_left_it() -> None:
    timings = [TimedSize(1, 1.0, 1.0), TimedSize(2, 1.0, 1.1)]
    quantiles = corrected(timings, 4, 1.0, Spreads(level=1.0, slope=0.0, wander=0.1, noise=1e-6))
    assert quantiles.p50 == pytest.approx(1.1, rel=1e-4)


def test_the_interval_widens_with_the_distance_in_both_directions() -> None:
    timings = [TimedSize(16, 1.0, 1.0), TimedSize(32, 2.0, 2.0)]
    widths = [
        math.log(quantiles.p90 / quantiles.p10)
        for quantiles in (corrected(timings, size, size / 16, spreads()) for size in (32, 64, 256))
    ]
    assert widths == sorted(widths)
    below = corrected(timings, 2, 0.125, spreads())
    assert math.log(below.p90 / below.p10) > widths[0]


def test_more_timings_never_widen_the_interval() -> None:
    one = corrected([TimedSize(64, 1.0, 1.2)], 128, 2.0)
    two = corrected([TimedSize(32, 0.5, 0.6), TimedSize(64, 1.0, 1.2)], 128, 2.0)
    assert two.p90 / two.p10 <= one.p90 / one.p10


def test_missing_and_invalid_timings_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="at least one"):
        corrected([], 8, 1.0)
    with pytest.raises(InvalidRequest, match="above 0"):
        TimedSize(8, 1.0, -1.0)
    with pytest.raises(InvalidRequest, match="above 0"):
        corrected([TimedSize(8, 1.0, 1.0)], 0, 1.0)
