"""Stacked bars: shares by hand, many parts grouped, and what does not fit."""

from __future__ import annotations

import pytest
from tests.support.drawings import charts, of_class, parsed, text_of

from foretrain.serving.html.bars import COLOURS, Slice, Stack, stacked_bar


def stack(*values: float, capacity: float | None = None, ends: tuple[float, float] | None = None) -> Stack:
    return Stack(
        title="A job",
        subtitle="",
        description="its parts",
        slices=tuple(Slice(f"part {n}", value, f"{value:g} s", "source") for n, value in enumerate(values)),
        total_text="all",
        part_header="part",
        value_header="time",
        note_header="rests on",
        capacity=capacity,
        capacity_text="" if capacity is None else f"{capacity:g} s",
        ends=ends,
    )


def drawn(made: Stack) -> str:
    return stacked_bar(made, lambda value: f"{value:g} s")


def widths(markup: str) -> list[float]:
    return [float(part.get("width", "").rstrip("%")) for part in of_class(charts(markup)[0], "part")]


def rows(markup: str) -> list[list[str]]:
    return [
        [text_of(cell) for cell in row.iter("td")]
        for row in parsed(markup).iter("tr")
        if row.find("td") is not None
    ]


def test_parts_fill_the_bar() -> None:
    markup = drawn(stack(1, 2, 5))
    assert widths(markup) == [12.5, 25, 62.5]
    assert rows(markup) == [
        ["part 0", "1 s", "12.5 %", "source"],
        ["part 1", "2 s", "25.0 %", "source"],
        ["part 2", "5 s", "62.5 %", "source"],
        ["total", "all", "100 %", ""],
    ]


def test_parts_of_a_capacity_leave_room() -> None:
    markup = drawn(stack(1, 1, capacity=8))
    assert widths(markup) == [12.5, 12.5]
    assert rows(markup)[-1][2] == "25 %of 8 s"
    assert not of_class(charts(markup)[0], "limit")


def test_what_does_not_fit_crosses_a_line() -> None:
    markup = drawn(stack(6, 4, capacity=8))
    (limit,) = of_class(charts(markup)[0], "limit")
    assert limit.get("x1") == "80.000%"
    assert rows(markup)[-1][2] == "125 %of 8 s"


def test_the_interval_may_end_beyond_the_parts() -> None:
    markup = drawn(stack(3, 1, ends=(2, 8)))
    assert widths(markup) == [37.5, 12.5]
    line = of_class(charts(markup)[0], "whisker")[0]
    assert (line.get("x1"), line.get("x2")) == ("25.000%", "100.000%")


def test_of_many_parts_the_smallest_are_one_and_named() -> None:
    markup = drawn(stack(*range(1, 13)))
    assert len(widths(markup)) == COLOURS
    assert sum(widths(markup)) == pytest.approx(100)
    others = rows(markup)[-2]
    assert others[:2] == ["5 others", "15 s"]
    assert others[3] == "part 0, part 1, part 2, part 3, part 4"


def test_as_many_parts_as_colours_are_all_shown() -> None:
    markup = drawn(stack(*[1] * COLOURS))
    assert len(rows(markup)) == COLOURS + 1
    assert "others" not in markup


def test_what_is_nothing_takes_no_colour() -> None:
    assert len(widths(drawn(stack(1, 0, 2)))) == 2
