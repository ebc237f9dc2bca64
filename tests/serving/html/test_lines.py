"""Lines: inside the drawing, ideal ones dashed, what does not fit hollow."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.drawings import charts, check_drawing, of_class, parsed, said

from foretrain.serving.html.charts import LineChart, Point, Series, line_chart
from foretrain.serving.html.scales import Axis, Quantity

NUMBERS = st.floats(0.01, 1e9)


def chart(*series: Series, is_log: bool = True) -> LineChart:
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
def test_everything_stands_inside_and_no_texts_overlap(
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
    for drawing in charts(line_chart(chart(*series, is_log=is_log))):
        check_drawing(drawing)


def test_the_ideal_is_a_line_without_points() -> None:
    ideal = Series("perfect", (Point(1, 10, ""), Point(8, 80, "")), is_ideal=True)
    real = Series("predicted", (Point(1, 10, "one"), Point(8, 60, "eight", "best", is_hollow=True)))
    markup = line_chart(chart(ideal, real))
    drawing = charts(markup)[0]
    assert len(of_class(drawing, "curve")) == 2
    assert len(of_class(drawing, "ideal")) == 1
    assert [said(circle) for circle in drawing.iter("circle")] == ["one", "eight"]
    assert len(of_class(drawing, "hollow")) == 1
    assert [said(label) for label in of_class(drawing, "label")] == ["best"]
    assert [said(entry) for entry in of_class(parsed(markup), "entry")] == ["perfect", "predicted"]


def test_a_band_goes_up_and_comes_back() -> None:
    banded = Series("p50", (Point(1, 10, ""), Point(2, 20, "")), low=(5, 10), high=(20, 40))
    (band,) = of_class(charts(line_chart(chart(banded)))[0], "band")
    assert band.get("d", "").count("L") == 3
