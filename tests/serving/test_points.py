"""Points on logarithmic axes, as a terminal shows them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrain.serving.rendering import terminal
from foretrain.serving.rendering.terminal import log_ticks, print_page
from foretrain.serving.views.blocks import Chart, Page, Series

SERIES = [
    Series("others", [3.0, 30.0], [20.0, 9.0], is_line=False),
    Series("front", [1.0, 10.0, 100.0], [50.0, 5.0, 1.0]),
    Series("chosen", [], [], is_main=True),
]


def print_points(title: str, x_label: str, y_label: str, series: list[Series]) -> None:
    chart = Chart(title, x_label=x_label, y_label=y_label, series=series, is_log=True)
    print_page(Page.of(title, [chart]))


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([1.0, 100.0], [1, 2, 5, 10, 20, 50, 100]),
        ([3.0, 40.0], [5, 10, 20]),
        ([0.02, 0.6], [0.02, 0.05, 0.1, 0.2, 0.5]),
        ([700.0, 900.0], [700]),  # nothing round between them: the least itself
        ([7.0], [7]),
        ([20.0], [20]),
    ],
)
def test_ticks_by_hand(values: list[float], ticks: list[float]) -> None:
    assert log_ticks(values) == pytest.approx(ticks)


@given(st.lists(st.floats(1e-6, 1e9), min_size=1, max_size=20))
def test_ticks_rise_and_lie_among_the_values(values: list[float]) -> None:
    ticks = log_ticks(values)
    assert ticks == sorted(set(ticks))
    assert all(min(values) <= tick <= max(values) for tick in ticks)
    if max(values) >= 10 * min(values):
        assert len(ticks) >= 3


def test_a_pipe_gets_no_drawing(capsys: pytest.CaptureFixture[str]) -> None:
    print_points("Title", "x", "y", SERIES)
    assert capsys.readouterr().out == ""


def test_a_terminal_gets_points_labels_and_round_numbers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "on_terminal", lambda: True)
    print_points("Time against money", "time, hours", "cost, USD", SERIES)
    drawn = capsys.readouterr().out
    for expected in ("Time against money", "time, hours", "cost, USD", "others", "front", "100", "50"):
        assert expected in drawn, expected
    assert "chosen" not in drawn, "no points, no label"
    assert len(drawn.splitlines()) >= 18


def test_equal_factors_are_equal_steps(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """1, 10 and 100 stand at equal distances: the axis is logarithmic."""
    monkeypatch.setattr(terminal, "on_terminal", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    decades = [1.0, 10.0, 100.0, 1000.0]
    print_points("", "x", "y", [Series("p", decades, decades, is_line=False, is_main=True)])
    below_label = capsys.readouterr().out.splitlines()[5:]
    columns = sorted(line.index("✓") for line in below_label if "✓" in line)
    assert len(columns) == 3
    assert math.isclose(columns[1] - columns[0], columns[2] - columns[1], abs_tol=2)
