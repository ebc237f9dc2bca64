"""The Pareto front of time against money, its knee, the limits, and why losers lost."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrain.errors import InvalidRequest
from foretrain.estimates import probability_within
from foretrain.planning.selection import (
    Reason,
    Verdict,
    cheapest_within,
    fastest_within,
    knee,
    pareto_front,
    probability_of_both,
    reasons,
)
from foretrain.planning.speedup import TimeAndCost, speedup_per_fold_of_cost

# Few distinct values, so that ties are common.
POINTS = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=40)
Points = list[tuple[int, int]]


def dominates(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] <= other[0] and one[1] <= other[1] and one != other


def columns(points: Points) -> tuple[list[int], list[int]]:
    return [point[0] for point in points], [point[1] for point in points]


@given(POINTS)
def test_the_front_is_what_nothing_dominates(points: Points) -> None:
    front = pareto_front(*columns(points)).tolist()
    undominated = [
        index for index, point in enumerate(points) if not any(dominates(other, point) for other in points)
    ]
    assert sorted(front) == undominated
    assert front == sorted(front, key=lambda index: (points[index], index))


@given(POINTS, st.integers(0, 13), st.integers(0, 13))
def test_limits_agree_with_brute_force(points: Points, deadline: int, budget: int) -> None:
    allowed = [point for point in points if point[0] <= deadline and point[1] <= budget]
    cheapest = cheapest_within(*columns(points), deadline, budget)
    fastest = fastest_within(*columns(points), budget, deadline)
    if not allowed:
        assert cheapest is None and fastest is None
    else:
        assert cheapest is not None and fastest is not None
        assert points[cheapest] == min(allowed, key=lambda point: (point[1], point[0]))
        assert points[fastest] == min(allowed)


@given(POINTS)
def test_no_alternative_buys_more_than_a_fold_of_speed_per_fold_of_cost_than_the_knee(
    points: Points,
) -> None:
    chosen = knee(*columns(points))
    assert chosen in pareto_front(*columns(points))
    baseline = TimeAndCost(*points[chosen])
    for point in points:
        assert speedup_per_fold_of_cost(baseline, TimeAndCost(*point)) <= 1 + 1e-12


@given(POINTS, st.integers(1, 13), st.integers(1, 13))
def test_every_loser_has_a_reason(points: Points, deadline: int, budget: int) -> None:
    front = set(pareto_front(*columns(points)).tolist())
    for point, reason in zip(points, reasons(*columns(points), deadline, budget), strict=True):
        assert (reason.better is None) == (reason.index in front)
        if reason.better is not None:
            assert reason.better in front
            assert dominates(points[reason.better], point)
        if point[0] > deadline:
            assert reason.verdict is Verdict.OVER_DEADLINE
            assert reason.excess_seconds == point[0] - deadline
        elif point[1] > budget:
            assert reason.verdict is Verdict.OVER_BUDGET
            assert reason.excess_usd == point[1] - budget
        elif reason.better is not None:
            assert reason.verdict is Verdict.DOMINATED
            assert reason.excess_seconds + reason.excess_usd > 0
        else:
            assert reason.verdict is Verdict.ON_FRONT


def test_a_loser_by_hand() -> None:
    listed = reasons([10, 20, 15, 20], [9, 3, 10, 4])
    assert listed[2] == Reason(2, Verdict.DOMINATED, 0, 5.0, 1.0)
    assert listed[3] == Reason(3, Verdict.DOMINATED, 1, 0.0, 1.0)
    assert [listed[0].verdict, listed[1].verdict] == [Verdict.ON_FRONT, Verdict.ON_FRONT]


def test_equals_stand_on_the_front_together() -> None:
    assert pareto_front([5, 3, 5, 3], [1, 2, 1, 2]).tolist() == [1, 3, 0, 2]


def test_no_alternatives() -> None:
    assert pareto_front([], []).tolist() == []
    assert reasons([], []) == ()
    assert cheapest_within([], []) is None
    with pytest.raises(InvalidRequest, match="a knee needs at least one alternative"):
        knee([], [])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_what_cannot_run_is_refused(bad: float) -> None:
    with pytest.raises(InvalidRequest, match="finite"):
        pareto_front([1.0, bad], [1.0, 1.0])


def test_lengths_must_agree() -> None:
    with pytest.raises(InvalidRequest, match="one time and one cost"):
        pareto_front([1.0, 2.0], [1.0])


@given(
    st.floats(0.1, 1e6), st.floats(1.001, 10), st.floats(1.001, 10), st.floats(0.01, 100), st.floats(1, 10)
)
def test_probability_passes_through_the_quantiles_and_rises(
    p50: float, below: float, above: float, factor: float, wider: float
) -> None:
    p10, p90 = p50 / below, p50 * above
    for limit, expected in ((p10, 0.1), (p50, 0.5), (p90, 0.9)):
        assert probability_within(p10, p50, p90, limit) == pytest.approx(expected, abs=1e-9)
    limit = p50 * factor
    assert probability_within(p10, p50, p90, limit) <= probability_within(p10, p50, p90, limit * wider)


def test_a_certain_quantity_is_within_or_not() -> None:
    assert probability_within([7.0, 7.0], [7.0, 7.0], [7.0, 9.0], 7.0).tolist() == [1.0, 0.5]
    assert probability_within([7.0], [7.0], [7.0], 6.9).tolist() == [0.0]
    assert probability_within([0.0], [0.0], [0.0], 0.0).tolist() == [1.0]
    assert probability_within([1.0], [2.0], [3.0], 0.0).tolist() == [0.0]
    assert probability_within([1.0], [2.0], [3.0], math.inf).tolist() == [1.0]


@pytest.mark.parametrize("within", [0.3, 0.5, 0.7])
def test_the_share_within_the_prediction_is_met_there_and_the_quantiles_stay(within: float) -> None:
    limits = (1.0, 2.0, 5.0)
    chances = [float(probability_within(1.0, 2.0, 5.0, limit, within)) for limit in limits]
    assert chances == pytest.approx([0.1, within, 0.9], abs=1e-12)
    nearly = [float(probability_within(1.0, 2.0, 5.0, 2.0 * (1 + off), within)) for off in (-1e-9, 1e-9)]
    assert nearly == pytest.approx([within, within], abs=1e-6)  # no jump at the prediction


def test_quantiles_out_of_order_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="in order"):
        probability_within([3.0], [2.0], [4.0], 1.0)


def test_both_limits_together_are_as_likely_as_the_tighter() -> None:
    assert probability_of_both([0.9, 0.2], [0.5, 0.8]).tolist() == [0.5, 0.2]


def test_a_hundred_thousand_alternatives() -> None:
    draws = np.random.default_rng(0).lognormal(size=(2, 100_000))
    front = pareto_front(*draws)
    assert (np.diff(draws[0][front]) > 0).all() and (np.diff(draws[1][front]) < 0).all()
