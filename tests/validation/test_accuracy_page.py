"""The accuracy pages are what the kept reports and figures say, and every suite is in them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from validation.__main__ import suites as runnable_suites
from validation.targets import Expectation, Figures, Suite, Target, Weakness, expectations, suites

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


def test_the_overview_opens_with_what_a_user_can_expect() -> None:
    """Before any suite: questions with median, p90 and coverage of history.csv, and where it is weaker."""
    opening = (ROOT / "docs" / "accuracy.md").read_text().split("## How to read")[0]
    rows = [line for line in opening.splitlines() if line.startswith("| [")]
    assert len(rows) == len(expectations()) >= 8
    question = "[How long is a training step on one GPU?](accuracy/transfer.md)"
    (figures,) = [
        line.split(",") for line in (ROOT / "validation" / "history.csv").read_text().splitlines()
        if line.startswith("transfer,a step on one GPU,foretrain,")
    ]  # fmt: skip
    median, p90, coverage = (f"{float(figures[column]):.0%}" for column in (5, 6, 8))
    assert rows[0].startswith(f"| {question} | {median} | {p90} | {coverage} | ")


def test_a_question_has_the_share_of_wrong_answers_and_weaker_cases_of_other_suites() -> None:
    weak = (Weakness("near the limit", "s", 0.131), Weakness("elsewhere", "t", 0.2))
    row = Expectation("Fits?", "s", Figures(192, 0.0729, None, None), is_share=True, weak=weak)
    assert accuracy_page._expected_row(row) == (
        "| [Fits?](accuracy/s.md) | 7% wrong |  |  | near the limit: 13% wrong; "
        "elsewhere: [20% wrong](accuracy/t.md) |"
    )


def test_suites_are_behind_their_overview() -> None:
    """The side bar has the overview alone; it links to every suite."""
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    assert "accuracy.md" in yaml.dump(site["nav"])
    assert "accuracy/" not in yaml.dump(site["nav"])
    assert "accuracy/" in site["not_in_nav"].split()
    overview = (ROOT / "docs" / "accuracy.md").read_text()
    assert [suite.id for suite in suites() if f"(accuracy/{suite.id}.md)" not in overview] == []
