"""Plots of a suite: drawn where there is something to draw, the same each time."""

from __future__ import annotations

from pathlib import Path

import pytest
from validation.report import Case, SuiteReport
from validation.scatter import draw, draw_reliability


def report_of(*cases: Case, reliability: tuple[tuple[float, float, int], ...] = ()) -> SuiteReport:
    return SuiteReport("example", cases, {}, reliability=reliability)


def test_cases_of_many_groups_are_points(tmp_path: Path) -> None:
    cases = [Case(f"case {n}", f"group {n}", n + 1.0, {"foretrain": n + 1.5}) for n in range(13)]
    for name in ("first.svg", "second.svg"):
        draw(report_of(*cases), tmp_path / name)
    drawing = (tmp_path / "first.svg").read_text(encoding="utf-8")
    assert drawing == (tmp_path / "second.svg").read_text(encoding="utf-8")
    assert drawing.count('aria-roledescription="point"') == 13
    assert "group 11" in drawing
    assert "others" in drawing, "the eleventh group and those after it share a colour"


@pytest.mark.parametrize("cases", [(), (Case("none", "", 0.0, {"foretrain": 1.0}),)])
def test_a_suite_without_positive_cases_is_not_drawn(cases: tuple[Case, ...], tmp_path: Path) -> None:
    draw(report_of(*cases), tmp_path / "nothing.png")
    draw_reliability(report_of(*cases), tmp_path / "nothing.png")
    assert not (tmp_path / "nothing.png").exists()


def test_probabilities_against_what_came_true(tmp_path: Path) -> None:
    draw_reliability(report_of(reliability=((0.1, 0.2, 10), (0.9, 0.8, 40))), tmp_path / "reliability.png")
    assert (tmp_path / "reliability.png").read_bytes().startswith(b"\x89PNG")
