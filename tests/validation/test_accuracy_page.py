"""The accuracy pages are what the kept reports and figures say, and every suite is in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from validation.__main__ import suites as runnable_suites
from validation.targets import Figures, Suite, Target, suites

from validation import accuracy_page

ROOT = Path(__file__).parents[2]


def target(mean: float | None, median: float | None, figures: Figures | None) -> Target:
    return Target("s", "what", "GPU", "all", "foretrain", mean, median, figures=figures)


@pytest.mark.parametrize(
    ("bounds", "figures", "met"),
    [
        ((0.10, None), Figures(3, 0.10, 0.5, None), True),
        ((0.10, None), Figures(3, 0.11, 0.0, None), False),
        ((None, 0.05), Figures(3, 0.90, 0.05, None), True),
        ((0.10, 0.05), Figures(3, 0.10, 0.06, None), False),
        ((0.10, None), Figures(3, 0.09, None, None), True),
        ((None, None), Figures(3, 0.09, 0.05, None), None),
        ((0.10, None), None, None),
    ],
)
def test_a_target_is_met_within_its_bounds(
    bounds: tuple[float | None, float | None], figures: Figures | None, met: bool | None
) -> None:
    assert target(*bounds, figures).is_met is met


def test_a_row_has_what_target_figures_cases_and_coverage() -> None:
    met = target(0.09, 0.05, Figures(1640, 0.0811, 0.0461, 0.79))
    finding, not_run = target(None, None, None), target(None, 0.05, None)
    suite = Suite("s", "Area", "Title", "About it.", (met, finding, not_run))
    first, second = accuracy_page._overview_rows(suite)  # a finding is on the page of the suite only
    assert first == (
        "| [`make validate SUITE=s`](accuracy/s.md) | what | GPU | 9.0% (5.0%) | 8.11% (4.61%) | 1,640 | 79% "
        "| met |"
    )
    assert second == "|  | what | GPU | (5.0%) | not run |  |  |  |"


def test_the_pages_are_up_to_date() -> None:
    """Run `python -m validation.accuracy_page` where this fails."""
    pages = accuracy_page.pages()
    stale = [path.name for path, text in pages.items() if not path.exists() or path.read_text() != text]
    assert not stale
    on_disk = set((ROOT / "docs" / "accuracy").glob("*.md"))
    assert on_disk == {path for path in pages if path.parent.name == "accuracy"}


def test_every_suite_is_described_and_has_figures() -> None:
    described = suites()
    assert sorted(suite.id for suite in described) == sorted(runnable_suites())
    assert all(suite.targets for suite in described)
    assert [t.what for suite in described for t in suite.targets if t.figures is None] == []


def test_the_overview_is_one_page() -> None:
    text = (ROOT / "docs" / "accuracy.md").read_text()
    assert len(text.split()) < 2500
    assert all(f"`make validate SUITE={suite.id}`" in text for suite in suites())


def test_every_page_is_in_the_navigation() -> None:
    lines = (ROOT / "mkdocs.yml").read_text()
    listed = re.findall(r"accuracy/(\w+)\.md", yaml.dump(yaml.safe_load(lines)["nav"]))
    assert sorted(listed) == sorted(suite.id for suite in suites())
