"""Which plan to take: against brute force over any plans and limits."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrain.errors import InvalidRequest
from foretrain.estimates import Quantiles
from foretrain.planning.options import Limits
from foretrain.planning.selection import Selection, numbers, select


def around(middle: float, below: float = 0.8, above: float = 1.5) -> Quantiles:
    return Quantiles(middle * below, middle, middle * above)


amounts = st.builds(
    around, st.integers(1, 40).map(float), st.sampled_from([0.5, 0.9, 1.0]), st.sampled_from([1.0, 1.2, 3.0])
)
limits = st.one_of(st.none(), st.integers(1, 45).map(float))


def choice_of(pairs: list[tuple[Quantiles, Quantiles]], within: Limits) -> Selection:
    return select(numbers([time for time, _ in pairs], [money for _, money in pairs]), within)


@given(st.lists(st.tuples(amounts, amounts), min_size=1, max_size=12), limits, limits)
def test_the_choice_is_that_of_brute_force(
    pairs: list[tuple[Quantiles, Quantiles]], deadline: float | None, budget: float | None
) -> None:
    """At even odds a plan keeps a limit if its median does."""
    choice = choice_of(pairs, Limits(deadline=deadline, budget=budget))
    latest, most = (math.inf if limit is None else limit for limit in (deadline, budget))
    kept = [(t.p50, m.p50) for t, m in pairs if t.p50 <= latest and m.p50 <= most]
    middles = [(t.p50, m.p50) for t, m in pairs]
    if not kept:
        assert (choice.cheapest, choice.fastest) == (None, None)
    else:
        assert choice.cheapest is not None and choice.fastest is not None
        assert middles[choice.cheapest][::-1] == min((m, t) for t, m in kept)
        assert middles[choice.fastest] == min(kept)
    expected = choice.knee
    if deadline is not None:
        expected = choice.cheapest  # type: ignore[assignment]
    elif budget is not None:
        expected = choice.fastest  # type: ignore[assignment]
    assert choice.chosen == expected
    assert math.prod(middles[choice.knee]) == min(t * m for t, m in middles)
    front = {
        index
        for index, (t, m) in enumerate(middles)
        if not any(x <= t and y <= m and (x < t or y < m) for x, y in middles)
    }
    assert set(choice.front) == front
    assert choice.knee in front
    assert {*front, choice.reported} <= choice.named


@given(
    st.lists(st.tuples(amounts, amounts), min_size=1, max_size=12),
    st.floats(1, 50),
    st.floats(1, 50),
    st.floats(0.05, 0.95),
)
def test_a_chosen_plan_keeps_both_limits_as_surely_as_asked(
    pairs: list[tuple[Quantiles, Quantiles]], deadline: float, budget: float, confidence: float
) -> None:
    choice = choice_of(pairs, Limits(deadline=deadline, budget=budget, confidence=confidence))
    sure = [
        index
        for index in range(len(pairs))
        if min(choice.in_time[index], choice.in_budget[index]) >= confidence
    ]
    if not sure:
        assert choice.chosen is None
        assert choice.both[choice.reported] >= choice.both.max() - 1e-3, "the nearest miss is the likeliest"
    else:
        assert choice.chosen in sure
        assert pairs[choice.chosen][1].p50 == min(pairs[index][1].p50 for index in sure)


def test_probabilities_at_the_quantiles_by_hand() -> None:
    pairs = [(Quantiles(8, 10, 15), Quantiles(1, 1, 1))]
    for limit, probability in ((8, 0.1), (10, 0.5), (15, 0.9)):
        choice = choice_of(pairs, Limits(deadline=limit))
        assert choice.in_time[0] == pytest.approx(probability)
        assert choice.in_budget[0] == 1
        assert choice.both[0] == pytest.approx(probability)
        assert (choice.chosen == 0) == (probability >= 0.5)


def test_of_hopeless_plans_the_one_that_exceeds_the_limits_least_is_shown() -> None:
    """All are certain to fail: twice the deadline, three times the budget, twice and a half both."""
    pairs = [(around(20, 1, 1), around(20, 1, 1)), (around(10, 1, 1), around(30, 1, 1))]
    pairs.append((around(25, 1, 1), around(25, 1, 1)))
    choice = choice_of(pairs, Limits(deadline=10, budget=10))
    assert choice.chosen is None
    assert choice.reported == 0
    assert choice.named == {0, 1}


def test_equals_in_money_are_decided_by_time_and_the_other_way_round() -> None:
    pairs = [(around(9), around(5)), (around(8), around(5)), (around(8), around(6))]
    choice = choice_of(pairs, Limits(deadline=100, budget=100))
    assert (choice.cheapest, choice.fastest, choice.chosen) == (1, 1, 1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"deadline": 0.0}, "`deadline` must be above 0, got 0"),
        ({"deadline": math.inf}, "`deadline` must be above 0, got inf"),
        ({"budget": -1.0}, "`budget` must be above 0, got -1"),
        ({"budget": math.nan}, "`budget` must be above 0, got nan"),
        ({"confidence": 1.0}, "`confidence` must be between 0 and 1, got 1"),
        ({"confidence": 0.0}, "`confidence` must be between 0 and 1, got 0"),
    ],
)
def test_limits_that_make_no_sense(arguments: dict[str, float], sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        Limits(**arguments)


def test_limits_are_there_or_not() -> None:
    assert not Limits().any
    assert Limits(budget=1.0).any and Limits(deadline=1.0).any
    assert (Limits().most_seconds, Limits().most_usd) == (math.inf, math.inf)


def test_a_plan_that_may_run_out_of_memory_is_chosen_only_where_no_other_keeps_the_limits() -> None:
    """The cheapest and fastest plan has a 39 % chance to run out of memory: with even odds it would do."""
    seconds, usd = [around(10.0), around(12.0), around(14.0)], [around(1.0), around(2.0), around(3.0)]
    fitting, safe = [0.61, 1.0, 1.0], [False, True, True]
    for within in (Limits(), Limits(deadline=100.0), Limits(budget=100.0)):
        choice = select(numbers(seconds, usd, fitting, safe=safe), within)
        assert choice.chosen == 1
        assert choice.next_best == (2,)
        assert choice.both[0] == pytest.approx(0.61, abs=0.01)
    seconds[0] = around(10.0, above=1.0)
    only = select(numbers(seconds, usd, fitting, safe=safe), Limits(deadline=10.5))
    assert only.chosen == 0, "no other is in time"


def test_the_next_best_follow_the_rule_of_the_choice() -> None:
    seconds, usd = [around(t) for t in (1.0, 2.0, 4.0, 8.0)], [around(u) for u in (9.0, 4.0, 3.0, 1.0)]
    by_cost = select(numbers(seconds, usd), Limits(deadline=100.0))
    by_time = select(numbers(seconds, usd), Limits(budget=100.0))
    assert (by_cost.chosen, *by_cost.next_best) == (3, 2, 1)
    assert (by_time.chosen, *by_time.next_best) == (0, 1, 2)
