"""Axes: ticks one would choose by hand, and pixels that stay inside."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrain.serving.html.scales import Axis, Quantity, Scale, scale_over, tick_text, ticks
from foretrain.units import DAY, HOUR, MINUTE, YEAR

VALUES = st.floats(1e-6, 1e9)


def texts(low: float, high: float, quantity: Quantity, most: int, is_log: bool = True) -> list[str]:
    return [tick.text for tick in ticks(Scale(low, high, 0, 100, is_log), quantity, most)]


def test_times_in_the_units_people_use() -> None:
    assert texts(8 * MINUTE, 7 * HOUR, Quantity.TIME, 9) == [
        "10 min", "20 min", "30 min", "1 h", "2 h", "3 h", "6 h",
    ]  # fmt: skip
    assert texts(8 * MINUTE, 7 * HOUR, Quantity.TIME, 5) == ["10 min", "30 min", "2 h", "6 h"]
    assert texts(20 * HOUR, 50 * DAY, Quantity.TIME, 9) == ["1 d", "2 d", "4 d", "7 d", "14 d", "30 d"]
    assert texts(0.5, 40 * YEAR, Quantity.TIME, 6) == ["10 s", "10 min", "6 h", "7 d", "1 y"]


def test_a_short_range_of_time_gets_even_ticks() -> None:
    assert texts(21 * HOUR, 29 * HOUR, Quantity.TIME, 5) == ["22 h", "24 h", "26 h", "28 h"]
    assert texts(0.8e-3, 1.2e-3, Quantity.TIME, 5) == ["800 us", "900 us", "1,000 us", "1,100 us", "1,200 us"]


def test_money() -> None:
    assert texts(0.4, 60, Quantity.MONEY, 9) == ["$0.50", "$1", "$2", "$5", "$10", "$20", "$50"]
    assert texts(0.4, 60, Quantity.MONEY, 5) == ["$1", "$3", "$10", "$30"]
    assert texts(800, 3e6, Quantity.MONEY, 5) == ["$1,000", "$10k", "$100k", "$1M"]
    assert texts(21, 24, Quantity.MONEY, 5) == ["$21", "$22", "$23", "$24"]
    assert tick_text(0.125, Quantity.MONEY) == "$0.125"


def test_powers_of_two_and_numbers() -> None:
    assert texts(0.9, 70, Quantity.POWERS_OF_TWO, 9) == ["1", "2", "4", "8", "16", "32", "64"]
    assert texts(0.9, 70, Quantity.POWERS_OF_TWO, 4) == ["1", "4", "16", "64"]
    assert texts(0, 100, Quantity.NUMBER, 6, is_log=False) == ["0", "20", "40", "60", "80", "100"]


def test_logarithmic_pixels() -> None:
    scale = Scale(1, 100, 0, 200, is_log=True)
    assert [scale.pixel(value) for value in (1, 10, 100)] == pytest.approx([0, 100, 200])
    assert scale.holds(100)
    assert not scale.holds(101)


def test_a_linear_axis_begins_at_nothing() -> None:
    assert scale_over([5, 10], Axis("", Quantity.NUMBER, is_log=False), 0, 100).low == 0
    assert scale_over([0, 0], Axis("", Quantity.NUMBER, is_log=False), 0, 100).high > 0


def test_a_logarithmic_axis_has_no_zero() -> None:
    with pytest.raises(ValueError, match="cost"):
        scale_over([0, 1], Axis("cost", Quantity.MONEY), 0, 100)


@given(st.lists(VALUES, min_size=1), st.sampled_from(Quantity), st.integers(2, 12), st.booleans())
def test_values_and_ticks_stay_inside(
    values: list[float], quantity: Quantity, most: int, is_log: bool
) -> None:
    scale = scale_over(values, Axis("", quantity, is_log), 10, 200)
    assert all(10 <= scale.pixel(value) <= 200 for value in values)
    found = [tick.value for tick in ticks(scale, quantity, most)]
    assert len(found) <= most
    assert found == sorted(set(found))
    assert all(10 - 1e-6 <= scale.pixel(value) <= 200 + 1e-6 for value in found if value > 0 or not is_log)


@given(st.floats(0.01, 1e7), st.floats(1.05, 1e6), st.sampled_from(Quantity))
def test_there_are_always_some_ticks_with_distinct_labels(
    low: float, factor: float, quantity: Quantity
) -> None:
    scale = scale_over([low, low * factor], Axis("", quantity), 0, 800)
    found = ticks(scale, quantity, 8)
    assert found
    assert len({tick.text for tick in found}) == len(found)
    assert all(math.isfinite(tick.value) for tick in found)
