"""Charts with two axes: everything inside, no texts over each other, fronts, limits, bands."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.drawings import charts, check_drawing, of_class, parsed, size, text_of

from foretrain.serving.html.charts import (
    Dot,
    Limit,
    LineChart,
    Point,
    Scatter,
    Series,
    Standing,
    line_chart,
    scatter,
)
from foretrain.serving.html.scales import Axis, Quantity

TIMES, MONEY = st.floats(1, 1e7), st.floats(0.01, 1e6)
DOTS = st.builds(
    Dot, TIMES, MONEY, st.sampled_from(Standing), st.just("tip"), st.sampled_from([(), ("12 aws:p4d", "12")])
)


def scatter_of(*dots: Dot, x_limit: Limit | None = None, y_limit: Limit | None = None) -> Scatter:
    return Scatter(
        "Time against money", "some plans", Axis("time", Quantity.TIME), Axis("cost", Quantity.MONEY),
        dots, x_limit, y_limit,
    )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(DOTS, min_size=1, max_size=30), st.none() | TIMES, st.none() | MONEY)
def test_points_stand_inside_and_no_texts_overlap(
    dots: list[Dot], deadline: float | None, budget: float | None
) -> None:
    info = scatter_of(
        *dots,
        x_limit=None if deadline is None else Limit(deadline, "deadline 24h 00m"),
        y_limit=None if budget is None else Limit(budget, "budget $200"),
    )
    drawings = charts(scatter(info))
    assert [size(drawing) for drawing in drawings] == [(880, 420), (360, 340)]
    for drawing in drawings:
        check_drawing(drawing)


def test_the_front_is_a_line_from_the_fastest_to_the_cheapest() -> None:
    front = [Dot(x, y, Standing.FRONT, "") for x, y in ((400, 1), (100, 4), (200, 2))]
    (line,) = of_class(charts(scatter(scatter_of(*front)))[0], "front-line")
    steps = [tuple(map(float, step.split())) for step in line.get("d", "").removeprefix("M").split(" L")]
    assert steps == sorted(steps)
    (first, second), third = steps[:2], steps[2]
    # Times and money both in steps of two: on logarithmic axes the middle is in the middle.
    assert second[0] - first[0] == pytest.approx(third[0] - second[0], abs=0.2)
    assert second[1] - first[1] == pytest.approx(third[1] - second[1], abs=0.2)


def test_points_have_tips_and_the_chosen_one_is_named() -> None:
    dots = (
        Dot(100, 4, Standing.FRONT, "fast one: 100 s", ("1 fast one", "1")),
        Dot(200, 2, Standing.CHOSEN, "chosen one", ("2 chosen one",), (150, 300), (1.5, 3)),
        Dot(300, 9, Standing.OTHER, "loser"),
    )
    drawing = charts(scatter(scatter_of(*dots)))[0]
    assert [text_of(circle) for circle in drawing.iter("circle")] == [
        "loser",
        "fast one: 100 s",
        "chosen one",
    ]
    assert "2 chosen one" in [text_of(text) for text in of_class(drawing, "chosen") if text.tag == "text"]
    assert len(of_class(drawing, "interval")) == 2


def test_limits_are_lines_with_names() -> None:
    info = scatter_of(
        Dot(100, 4, Standing.FRONT, ""), x_limit=Limit(500, "deadline"), y_limit=Limit(1, "budget")
    )
    for drawing in charts(scatter(info)):
        assert len(of_class(drawing, "limit")) == 2
        assert [text_of(text) for text in of_class(drawing, "limit-label")] == ["deadline", "budget"]


def test_thousands_of_others_are_drawn_as_few() -> None:
    crowd = [Dot(100 + number % 7, 4, Standing.OTHER, f"plan {number}") for number in range(5000)]
    markup = scatter(scatter_of(Dot(90, 2, Standing.FRONT, ""), *crowd))
    drawing = charts(markup)[0]
    assert len(of_class(drawing, "other")) < 100
    assert "more here" in markup
    assert len(markup) < 50_000


def test_points_far_away_are_counted_not_drawn() -> None:
    info = scatter_of(
        Dot(1, 1, Standing.FRONT, ""), Dot(5, 5, Standing.OTHER, ""), Dot(1, 1e6, Standing.OTHER, "")
    )
    markup = scatter(info)
    assert len(of_class(charts(markup)[0], "other")) == 1
    assert "Not drawn, far beyond the upper right: 1" in text_of(parsed(markup))


def test_names_are_escaped() -> None:
    hostile = "<script>&'\""
    markup = scatter(scatter_of(Dot(1, 1, Standing.CHOSEN, hostile, (hostile,))))
    assert "<script" not in markup
    assert text_of(next(charts(markup)[0].iter("circle"))) == hostile


NUMBERS = st.floats(0.01, 1e9)


def lines_of(*series: Series, is_log: bool = True) -> LineChart:
    return LineChart(
        "Throughput", "by devices", Axis("GPUs", Quantity.POWERS_OF_TWO),
        Axis("samples/s", Quantity.NUMBER, is_log), series,
    )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(NUMBERS, min_size=1, max_size=8), min_size=1, max_size=9),
    st.booleans(),
    st.integers(0, 7),
)
def test_lines_stand_inside_and_no_texts_overlap(
    lines: list[list[float]], is_log: bool, labelled: int
) -> None:
    series = tuple(
        Series(
            f"series {number}",
            tuple(
                Point(2.0**place, y, "tip", "most samples/s" if place == labelled else "")
                for place, y in enumerate(ys)
            ),
        )
        for number, ys in enumerate(lines)
    )
    for drawing in charts(line_chart(lines_of(*series, is_log=is_log))):
        check_drawing(drawing)


def test_the_ideal_is_a_line_without_points() -> None:
    ideal = Series("perfect", (Point(1, 10, ""), Point(8, 80, "")), is_ideal=True)
    real = Series("predicted", (Point(1, 10, "one"), Point(8, 60, "eight", "best", is_hollow=True)))
    markup = line_chart(lines_of(ideal, real))
    drawing = charts(markup)[0]
    assert len(of_class(drawing, "curve")) == 2
    assert len(of_class(drawing, "ideal")) == 1
    assert [text_of(circle) for circle in drawing.iter("circle")] == ["one", "eight"]
    assert len(of_class(drawing, "hollow")) == 1
    assert [text_of(label) for label in of_class(drawing, "label")] == ["best"]
    assert [text_of(entry) for entry in of_class(parsed(markup), "entry")] == ["perfect", "predicted"]


def test_a_band_goes_up_and_comes_back() -> None:
    banded = Series("p50", (Point(1, 10, ""), Point(2, 20, "")), low=(5, 10), high=(20, 40))
    (band,) = of_class(charts(line_chart(lines_of(banded)))[0], "band")
    assert band.get("d", "").count("L") == 3
