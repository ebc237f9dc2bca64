"""Scaling curves: the knee and the best number by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrain.prediction.advice.scaling_curve import ScalingCurve, ScalingPoint, scaling_curve


def curve_of(speeds: dict[int, float], too_small: frozenset[int] = frozenset()) -> ScalingCurve:
    """A curve with the samples per second of each number of devices."""

    def measure(devices: int) -> ScalingPoint | None:
        if devices not in speeds:
            return None
        return ScalingPoint(devices, "", 1, 1.0, speeds[devices], 1.0, 0.0, devices not in too_small)

    counts = range(1, 1 + max(speeds, default=0))
    curve = scaling_curve(counts, measure, is_batch_fixed=False)
    assert curve is not None
    return curve


def test_perfect_scaling_is_worth_every_doubling() -> None:
    curve = curve_of({1: 10, 2: 20, 4: 40, 8: 80})
    assert (curve.knee, curve.best) == (8, 8)


def test_the_knee_is_where_doublings_bring_less_than_three_quarters() -> None:
    curve = curve_of({1: 10, 2: 16, 4: 23, 8: 34.6})  # gains of 1.6, 1.44, 1.504
    assert (curve.knee, curve.best) == (2, 8)


def test_more_devices_that_are_slower_are_not_best() -> None:
    curve = curve_of({1: 10, 2: 8, 4: 9, 8: 9.5})
    assert (curve.knee, curve.best) == (1, 1)


def test_of_equals_the_fewest_are_best() -> None:
    assert curve_of({1: 10, 2: 19.9, 4: 20}).best == 2


def test_steps_other_than_doublings_are_held_to_as_much() -> None:
    # three quarters of each of three doublings: 1.5 ** 3 = 3.375 times as fast on 8 as on 1
    assert curve_of({1: 10, 8: 33.8}).knee == 8
    assert curve_of({1: 10, 8: 33.7}).knee == 1
    # 1.5 ** log2(1.5) = 1.268 times as fast on 6 as on 4
    assert curve_of({4: 10, 6: 12.7}).knee == 6
    assert curve_of({4: 10, 6: 12.6}).knee == 4


def test_numbers_that_do_not_fit_are_no_candidates() -> None:
    curve = curve_of({1: 100, 2: 20, 4: 30}, too_small=frozenset({1}))
    assert (curve.knee, curve.best) == (4, 4)
    assert len(curve.points) == 3
    nowhere = curve_of({1: 10, 2: 19}, too_small=frozenset({1, 2}))
    assert (nowhere.knee, nowhere.best) == (None, None)


def test_efficiency_is_against_the_fewest_devices_that_fit() -> None:
    """One device would take 10 samples a second if it fitted; 2 and 4 that fit take 25 and 40."""
    curve = curve_of({1: 10.0, 2: 25.0, 4: 40.0}, too_small=frozenset({1}))
    assert [point.efficiency for point in curve.points[1:]] == [1.0, 0.8]


def test_nothing_possible_is_no_curve() -> None:
    assert scaling_curve([1, 2], lambda _: None, is_batch_fixed=True) is None


@given(st.dictionaries(st.sampled_from([1, 2, 4, 8, 16]), st.floats(1, 1e6), min_size=1))
def test_knee_and_best_are_points(speeds: dict[int, float]) -> None:
    curve = curve_of(speeds)
    assert curve.knee in speeds
    assert curve.best in speeds
    assert speeds[curve.best] == pytest.approx(max(speeds.values()), rel=0.011)
