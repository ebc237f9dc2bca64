"""Labels find room beside their points, or are left out."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrain.serving.html.drawing import Box, Wanted, place_labels, placed_at

AREA = Box(0, 0, 300, 200)
POINTS = st.builds(
    Wanted, st.floats(0, 300), st.floats(0, 200), st.just(5.0), st.just(("a rather long label", "1"))
)


def test_a_lone_label_stands_below_and_to_the_left() -> None:
    (place,) = place_labels([Wanted(100, 100, 5, ("name",))], 10, AREA)
    assert place is not None
    assert (place.x, place.y, place.anchor) == (92, 113, "end")
    # n, a and e take 0.64 of the size each, m all of it
    assert place.box.left == pytest.approx(92 - 29.2)
    assert (place.box.top, place.box.right, place.box.bottom) == (113 - 8.5, 92, 116)


def test_above_a_rising_line() -> None:
    (place,) = place_labels([Wanted(100, 100, 5, ("name",))], 10, AREA, above=True)
    assert place is not None
    assert place.box.bottom <= 95


def test_a_point_at_the_left_edge_is_named_on_its_right() -> None:
    (place,) = place_labels([Wanted(5, 100, 5, ("name",))], 10, AREA)
    assert place is not None
    assert place.anchor == "start"


def test_the_short_text_where_the_long_one_has_no_room() -> None:
    everywhere_but = [Box(0, 0, 300, 85), Box(0, 115, 300, 200)]
    (place,) = place_labels([Wanted(20, 100, 5, ("x" * 60, "1"))], 10, AREA, everywhere_but)
    assert place is not None
    assert place.text == "1"


def test_nothing_where_nothing_has_room() -> None:
    assert place_labels([Wanted(100, 100, 5, ("name",))], 10, AREA, [AREA]) == [None]


def test_the_middle_of_a_text() -> None:
    assert placed_at("ab", 10, 50, 20, "middle").box.left == 50 - 6.4
    bold = placed_at("ab", 10, 50, 20, "middle", is_bold=True)
    assert bold.box.left == pytest.approx(50 - 1.12 * 6.4)


@given(st.lists(POINTS, max_size=12))
def test_labels_touch_neither_each_other_nor_a_point(points: list[Wanted]) -> None:
    found = [place for place in place_labels(points, 12, AREA) if place is not None]
    for first, second in combinations(found, 2):
        assert not first.box.overlaps(second.box)
    for place in found:
        assert place.box.inside(AREA)
        assert not any(place.box.overlaps(Box(p.x - 5, p.y - 5, p.x + 5, p.y + 5)) for p in points)
