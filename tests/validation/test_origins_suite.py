"""The page on the five documents: its tables are those of the suite, and what it refers to exists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from tests.test_docs import problem_with
from validation.origins_data import PAPERS, PaperItem, read_paper, read_papers
from validation.origins_figures import compute

from validation import origins_suite

ROOT = Path(__file__).parents[2]
PAGE = origins_suite.PAGE.read_text(encoding="utf-8")


def items() -> list[PaperItem]:
    return [item for paper in read_papers() for item in paper.items]


def between_markers(name: str) -> list[str]:
    return PAGE.partition(f"<!-- {name} -->\n")[2].partition("<!-- end -->")[0].splitlines()


def test_the_page_is_what_the_suite_makes_now() -> None:
    """Run `make validate SUITE=origins` where this fails."""
    papers = read_papers()
    tables = origins_suite.page_tables(papers, {paper.id: compute(paper) for paper in papers})
    stale = [name for name, lines in tables.items() if between_markers(name) != lines]
    assert not stale
    assert sorted(re.findall(r"<!-- (.*?) -->\n\|", PAGE)) == sorted(tables)


@pytest.mark.parametrize("name", [name for name in PAPERS if name != "ardagna"])
def test_every_number_and_finding_is_computed(name: str) -> None:
    """Ardagna's take a minute of scheduling; the test of the page computes them."""
    paper = read_paper(name)
    ours = compute(paper)
    assert {figure.key for figure in paper.figures} == set(ours.figures)
    assert {finding.key for finding in paper.findings} == set(ours.findings)
    for figure in paper.figures:
        if figure.how == "counted":  # the slides round 1.87 years to 1.75; 0.0458 MiB print as 0.05
            assert ours.figures[figure.key] == pytest.approx(figure.published, rel=0.16)


@pytest.mark.parametrize("item", items(), ids=lambda item: f"{item.where}: {item.says}")
def test_every_part_names_a_command_or_a_reason_a_page_and_a_test(item: PaperItem) -> None:
    assert bool(item.command) != bool(item.absent)
    if item.command:
        program, *words = shlex.split(item.command)
        assert program == "python" or (program == "foretrain" and problem_with(words) is None)
        files = [word for word in words if word.startswith(("docs/", "campaigns/", "examples/"))]
        assert [name for name in files if not (ROOT / name).exists()] == []
    page, _, heading = item.page.partition("#")
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert not heading or heading in {
        re.sub(r"[^\w -]", "", line).strip().lower().replace(" ", "-")
        for line in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    }
    file, _, test = item.test.partition("::")
    source = (ROOT / file).read_text(encoding="utf-8")
    assert not test or f"def {test}(" in source


def test_every_command_of_the_page_runs(
    run_command: Callable[..., CompletedProcess[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """But those that need a file of the reader's, train, or measure this machine."""
    monkeypatch.chdir(ROOT)
    needs = (
        "python examples/",
        "train.py",
        "googlenet.json",
        "trace.csv",
        "foretrain campaign",
        "foretrain run ",
        "learn resources",
    )
    commands = dict.fromkeys(item.command for item in items() if item.command)
    failed = [
        (command, answer.stderr)
        for command in commands
        if not any(word in command for word in needs)
        if (answer := run_command(*shlex.split(command)[1:])).returncode != 0
    ]
    assert not failed


def test_the_documents_are_named_by_their_authors() -> None:
    assert all(paper.title in PAGE for paper in read_papers())
    assert not re.search(r"\bseeds?\b(?! 0)", re.sub(r"`[^`]*`|```.*?```", "", PAGE, flags=re.DOTALL))
