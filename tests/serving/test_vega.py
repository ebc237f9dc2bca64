"""The vocabulary of charts: ticks one would choose by hand, and labels that find room or are left out."""

from __future__ import annotations

import random
from itertools import combinations
from xml.etree import ElementTree

import pytest
import vl_convert
from hypothesis import given
from hypothesis import strategies as st
from tests.support.drawings import labels, of_class, parsed

from foretrain.serving.views.vega import (
    FONT_SIZE,
    Box,
    ChartAxis,
    ChartQuantity,
    Placed,
    Wanted,
    axis_over,
    figure,
    label_layer,
    legend,
    place_labels,
    text_width,
    ticks,
)
from foretrain.units import DAY, HOUR, MINUTE, YEAR

VALUES = st.floats(1e-6, 1e9)


def drawn_axes(*axes: ChartAxis) -> list[ElementTree.Element]:
    """Horizontal axes as Vega draws them."""
    views = [
        {"width": axis.length, "height": 20, "data": {"values": [{"x": axis.high}]}, "mark": "point",
         "encoding": {"x": axis.channel("x")}}
        for axis in axes
    ]  # fmt: skip
    spec = figure("Axes", "", {"vconcat": views, "resolve": {"scale": {"x": "independent"}}})
    svg = parsed(vl_convert.vegalite_to_svg(spec, vl_version="5.20"))
    return [group for group in of_class(svg, "role-axis") if group.get("aria-roledescription") == "axis"]


def texts(low: float, high: float, quantity: ChartQuantity, most: int, is_log: bool = True) -> list[str]:
    """What stands along an axis with room for some ticks."""
    (axis,) = drawn_axes(ChartAxis("", quantity, low, high, 74.0 * most + 1, is_log))
    return labels(axis, "axis-label")


def test_times_in_the_units_people_use() -> None:
    assert texts(8 * MINUTE, 7 * HOUR, ChartQuantity.TIME, 9) == [
        "10 min", "20 min", "30 min", "1 h", "2 h", "3 h", "6 h",
    ]  # fmt: skip
    assert texts(8 * MINUTE, 7 * HOUR, ChartQuantity.TIME, 5) == ["10 min", "30 min", "2 h", "6 h"]
    assert texts(20 * HOUR, 50 * DAY, ChartQuantity.TIME, 9) == ["1 d", "2 d", "4 d", "7 d", "14 d", "30 d"]
    assert texts(0.5, 40 * YEAR, ChartQuantity.TIME, 6) == ["10 s", "10 min", "6 h", "7 d", "1 y"]
    assert texts(9e-3, 2, ChartQuantity.TIME, 6) == ["10 ms", "30 ms", "100 ms", "300 ms", "1 s"]
    assert texts(0.09, 2, ChartQuantity.TIME, 6) == ["100 ms", "200 ms", "500 ms", "1 s", "2 s"]
    assert texts(0.09, 2, ChartQuantity.TIME, 2) == ["100 ms", "1 s"]


def test_a_short_range_of_time_gets_even_ticks() -> None:
    assert texts(21 * HOUR, 29 * HOUR, ChartQuantity.TIME, 5) == ["22 h", "24 h", "26 h", "28 h"]
    assert texts(0, 2e-3, ChartQuantity.TIME, 5, is_log=False) == [
        "0 us",
        "500 us",
        "1,000 us",
        "1,500 us",
        "2,000 us",
    ]


def test_counts_have_no_tick_between_two_whole_things() -> None:
    assert texts(0, 1, ChartQuantity.COUNT, 6, is_log=False) == ["0", "1"]
    assert texts(0, 3, ChartQuantity.COUNT, 9, is_log=False) == ["0", "1", "2", "3"]


def test_money() -> None:
    assert texts(0.4, 60, ChartQuantity.MONEY, 9) == ["$0.50", "$1", "$2", "$5", "$10", "$20", "$50"]
    assert texts(0.4, 60, ChartQuantity.MONEY, 5) == ["$1", "$3", "$10", "$30"]
    assert texts(800, 3e6, ChartQuantity.MONEY, 5) == ["$1,000", "$10,000", "$100k", "$1M"]
    assert texts(0, 1.5e5, ChartQuantity.MONEY, 4, is_log=False) == ["$0", "$50k", "$100k", "$150k"]
    assert texts(21, 24, ChartQuantity.MONEY, 5) == ["$21", "$22", "$23", "$24"]
    assert texts(0.001, 0.02, ChartQuantity.MONEY, 4) == ["$0.001", "$0.003", "$0.01"]


def test_powers_of_two_and_numbers() -> None:
    assert texts(0.9, 70, ChartQuantity.POWERS_OF_TWO, 9) == ["1", "2", "4", "8", "16", "32", "64"]
    assert texts(0.9, 70, ChartQuantity.POWERS_OF_TWO, 4) == ["1", "4", "16", "64"]
    assert texts(0, 100, ChartQuantity.NUMBER, 6, is_log=False) == ["0", "20", "40", "60", "80", "100"]
    assert texts(0, 4e6, ChartQuantity.NUMBER, 5, is_log=False) == ["0", "1M", "2M", "3M", "4M"]


def test_no_tick_stands_between_two_jobs() -> None:
    assert texts(0, 2, ChartQuantity.COUNT, 9, is_log=False) == ["0", "1", "2"]


def test_logarithmic_pixels() -> None:
    axis = ChartAxis("", ChartQuantity.NUMBER, 1, 100, 200, is_log=True)
    assert [axis.pixel(value) for value in (1, 10, 100)] == pytest.approx([0, 100, 200])
    upright = ChartAxis("", ChartQuantity.NUMBER, 1, 100, 200, is_log=True, is_vertical=True)
    assert [upright.pixel(value) for value in (1, 10, 100)] == pytest.approx([200, 100, 0])


def test_a_linear_axis_begins_at_nothing() -> None:
    assert axis_over([5, 10], "", ChartQuantity.NUMBER, 100).low == 0
    assert axis_over([0, 0], "", ChartQuantity.NUMBER, 100).high > 0
    assert axis_over([], "", ChartQuantity.NUMBER, 100).high > 0


def test_a_logarithmic_axis_has_no_zero() -> None:
    with pytest.raises(ValueError, match="cost"):
        axis_over([0, 1], "cost", ChartQuantity.MONEY, 100, is_log=True)


@given(st.lists(VALUES, min_size=1), st.sampled_from(ChartQuantity), st.integers(2, 12), st.booleans())
def test_values_and_ticks_stay_inside(
    values: list[float], quantity: ChartQuantity, most: int, is_log: bool
) -> None:
    axis = axis_over(values, "", quantity, 200, is_log=is_log)
    assert all(-1e-6 <= axis.pixel(value) <= 200 + 1e-6 for value in values)
    found = ticks(axis, most)
    assert len(found) <= most
    assert found == sorted(set(found))
    assert all(-1e-6 <= axis.pixel(value) <= 200 + 1e-6 for value in found if value > 0 or not is_log)


def test_there_are_always_some_ticks_with_distinct_labels() -> None:
    draw = random.Random(0)
    ranges = [(10 ** draw.uniform(-2, 7), 10 ** draw.uniform(0.02, 6)) for _ in range(10)]
    axes = [
        axis_over([low, low * factor], "", quantity, 600, is_log=True)
        for low, factor in ranges
        for quantity in ChartQuantity
    ]
    for axis, drawn in zip(axes, drawn_axes(*axes), strict=True):
        found = labels(drawn, "axis-label")
        assert found, axis
        assert len(set(found)) == len(found), axis


# ---------------------------------------------------------------- labels


ACROSS = ChartAxis("", ChartQuantity.NUMBER, 0, 300, 300)
UP = ChartAxis("", ChartQuantity.NUMBER, 0, 200, 200, is_vertical=True)
EVERYWHERE = Box(-100, -100, 400, 300)


def point(x: float, y: float, *names: str) -> Wanted:
    """A point by its pixels from the left and the top."""
    return Wanted(x, 200 - y, names, 5.0)


def place(wanted: Wanted, *taken: Box, above: bool = False) -> Placed | None:
    (label,) = place_labels([wanted], ACROSS, UP, taken, above=above)
    return label


def test_a_lone_label_stands_below_and_to_the_left() -> None:
    label = place(point(100, 100, "name"))
    assert label is not None
    assert (label.anchor, label.across, label.down) == ("right", -8, 14)
    # n, a and e take 0.64 of the size each, m all of it
    assert label.box.left == pytest.approx(92 - 2.92 * FONT_SIZE)
    assert (label.box.top, label.box.right, label.box.bottom) == pytest.approx((114 - 10.2, 92, 117.6))


def test_above_a_rising_line() -> None:
    label = place(point(100, 100, "name"), above=True)
    assert label is not None
    assert label.box.bottom <= 96


def test_a_point_at_the_left_edge_is_named_on_its_right() -> None:
    label = place(point(5, 100, "name"))
    assert label is not None
    assert label.anchor == "left"


def test_the_short_text_where_the_long_one_has_no_room() -> None:
    everywhere_but = [Box(0, 0, 300, 85), Box(0, 115, 300, 200)]
    label = place(point(20, 100, "x" * 60, "1"), *everywhere_but)
    assert label is not None
    assert label.text == "1"


def test_nothing_where_nothing_has_room() -> None:
    assert place(point(100, 100, "name"), EVERYWHERE) is None
    assert label_layer([None], ACROSS, UP) == []


def test_bold_texts_are_wider() -> None:
    assert text_width("ab", 10) == pytest.approx(12.8)
    assert text_width("ab", 10, is_bold=True) == pytest.approx(1.12 * 12.8)


POINTS = st.builds(point, st.floats(0, 300), st.floats(0, 200), st.just("a rather long label"), st.just("1"))


@given(st.lists(POINTS, max_size=12))
def test_labels_touch_neither_each_other_nor_a_point(points: list[Wanted]) -> None:
    found = [label for label in place_labels(points, ACROSS, UP) if label is not None]
    for first, second in combinations(found, 2):
        assert not first.box.overlaps(second.box)
    marks = [Box(p.x - 5, 195 - p.y, p.x + 5, 205 - p.y) for p in points]
    for label in found:
        assert label.box.inside(Box(0, -8, 312, 200))
        assert not any(label.box.overlaps(mark) for mark in marks)


def test_a_legend_has_as_many_columns_as_fit() -> None:
    names = ["front: nothing is both faster and cheaper", "chosen", "other plans"]
    assert legend(names, 800)["columns"] == 3
    assert legend(names, 290)["columns"] == 1
    assert legend([], 290)["columns"] == 0
