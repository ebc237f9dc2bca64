"""The accuracy pages: `docs/accuracy.md` with all targets, and `docs/accuracy/<suite>.md` with each report.

Run `python -m validation.accuracy_page` to write them again from the kept reports and figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from foretrain.facts.user_data import write_atomically
from validation.report import SuiteReport, markdown
from validation.scatter import draw, draw_reliability
from validation.targets import Expectation, Suite, Target, expectations, suites

ROOT = Path(__file__).parents[1]
REPORTS = ROOT / "validation" / "reports"
DOCS = ROOT / "docs"
IMAGES = DOCS / "images" / "accuracy"
TRANSFER = "transfer"
"""The suite that the overview opens with."""
RUN_SINCE = frozenset(
    "transfer own_timings curves nanogpt dawnbench amd kernels_matrix kernels_vector kernels_convolution "
    "layout_memory published peft neusight compiled did_it_run mlperf_time vtrain ultrascale lambda backward "
    "deepbench profet two_phase dawnbench_runs seed_job batch_size driple collectives justus algoperf "
    "data_parallel lambda_multi origins".split()
)
"""Suites whose figures are those of the shipped calibrations; the page names all others."""
_LISTED = 2
"""Targets of a suite in the overview, without those that are findings; its page has all."""

_INTRODUCTION = """# Accuracy

## What you can expect

Errors of predictions against public measurements, as shares of the measured value. *Half within* is the
median error, *nine of ten within* the 90th percentile; *in interval* is how often the 80 % interval contained
the measured value; *weaker* gives median errors of harder cases.

{expectations}

{headline}

The rest of this page compares predictions with public measurements, suite by suite. The page of each suite
has all cases, other methods and the largest errors. {summary}

{stale}

## How to read the table

- **left out** names what no fit saw: whole groups (source, GPU, model family, placement), not single rows.
  *Whole source*: no measurement of that data set, harness or framework was used.
- **target** and **found** are absolute errors as shares of the measured value: the mean, and the median in
  brackets. A mean far above the median comes from a few large errors.
- **in interval** is the share of measurements inside the predicted 80 % interval. 75 to 85 % is good.
- **suite** is the command that produces its figures, and a link to its page. `FORETRAIN_DATA` names the data.

Figures are in `validation/history.csv`, targets in `validation/targets.toml`, the questions above in
`validation/expectations.toml`.
"""

_EXPECTED = "| question | half within | nine of ten within | in interval | weaker |\n|---|---|---|---|---|"
_HEADING = (
    "| suite | what | left out | target | found | cases | in interval | |\n|---|---|---|---|---|---|---|---|"
)
_SUITE_HEADING = "| what | left out | target | found | cases | in interval | |\n|---|---|---|---|---|---|---|"
_SUITE_NOTE = """*mean*, *median* and *p90* are absolute errors as shares of the measured value. *bias* is the
median signed error, positive where the method predicts too much. See
[how to read the table](../accuracy.md#how-to-read-the-table).
"""


def write_report(suite: str, report: SuiteReport) -> None:
    """Keep the report of a suite with its plot, and write the pages again."""
    write_atomically(REPORTS / f"{suite}.md", f"{markdown(report).rstrip()}\n")
    IMAGES.mkdir(parents=True, exist_ok=True)
    draw(report, IMAGES / f"{suite}.png")
    draw_reliability(report, IMAGES / f"{suite}_reliability.png")
    write_pages()


def write_pages() -> None:
    """Write all accuracy pages."""
    for path, text in pages().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)


def pages() -> dict[Path, str]:
    """The text of every accuracy page by its path."""
    declared = suites()
    return {
        DOCS / "accuracy.md": _overview(declared),
        **{DOCS / "accuracy" / f"{suite.id}.md": _suite_page(suite) for suite in declared},
    }


def _overview(declared: Sequence[Suite]) -> str:
    """All targets and findings, a table for each area."""
    sections = [
        _INTRODUCTION.format(
            expectations="\n".join([_EXPECTED, *map(_expected_row, expectations())]),
            headline=_headline(declared),
            summary=_summary(declared),
            stale=_stale(declared),
        )
    ]
    for area, members in groupby(declared, key=lambda suite: suite.area):
        rows = (row for suite in members for row in _overview_rows(suite))
        sections.append("\n".join([f"## {area}\n", _HEADING, *rows]) + "\n")
    return "\n".join(sections)


def _expected_row(row: Expectation) -> str:
    """A question with its errors; a weakness links to another suite where that has its figure."""
    weak = []
    for case in row.weak:
        figure = f"{case.figure:.0%}{' wrong' if row.is_share else ''}"
        link = figure if case.suite == row.suite else f"[{figure}](accuracy/{case.suite}.md)"
        weak.append(f"{case.what}: {link}")
    figures = row.figures
    half = f"{figures.mean:.0%} wrong" if row.is_share else _percent(figures.median)
    cells = (
        f"[{row.question}](accuracy/{row.suite}.md)", half, _percent(figures.p90), _percent(figures.coverage),
        "; ".join(weak),
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _headline(declared: Sequence[Suite]) -> str:
    """What to expect on sources that no fit saw, beside a flat share of peak and the roofline."""
    figures = {
        (target.cases, target.method): target.figures
        for suite in declared
        if suite.id == TRANSFER
        for target in suite.targets
    }
    sentences = []
    for cases in ("a step on one GPU", "a step on many GPUs"):
        ours = figures.get((cases, "foretrain"))
        if ours is None:
            continue
        others = [
            f"{name}: {other.mean:.0%}"
            for method, name in (("napkin", "assuming 40 % of peak"), ("roofline", "the roofline"))
            if (other := figures.get((cases, method))) is not None
        ]
        beside = f"; {'; '.join(others)}" if others else ""
        inside = "" if ours.coverage is None else f"; the 80 % interval holds {ours.coverage:.0%}"
        middle = ours.mean if ours.median is None else ours.median
        sentences.append(f"- **{cases}: typically {middle:.0%} off** (mean {ours.mean:.0%}{beside}{inside})")
    if not sentences:
        return "Run `make validate SUITE=transfer` for the errors on sources that no fit saw."
    link = "[sources that every fit left out](accuracy/transfer.md)"
    return f"Steps compared with simpler methods, on {link}:\n\n" + "\n".join(sentences)


def _stale(declared: Sequence[Suite]) -> str:
    """Which suites ran before the newest change of the physics."""
    older = [f"`{suite.id}`" for suite in declared if suite.id not in RUN_SINCE]
    return f"Not run since kernels, hosts and power were refitted (2026-11-18): {', '.join(older)}."


def _summary(declared: Sequence[Suite]) -> str:
    verdicts = [target.is_met for suite in declared for target in suite.targets]
    met, missed = verdicts.count(True), verdicts.count(False)
    return f"{len(declared)} suites have {met + missed} targets: {met} are met, {missed} are missed."


def _overview_rows(suite: Suite) -> Iterator[str]:
    """The rows of a suite; the first carries its command, with a link to its page."""
    held_to = [target for target in suite.targets if (target.mean, target.median) != (None, None)]
    for number, target in enumerate(held_to[:_LISTED] or suite.targets[:1]):
        link = f"[`make validate SUITE={suite.id}`](accuracy/{suite.id}.md)" if number == 0 else ""
        yield f"| {link} | {' | '.join(_cells(target))} |"


def _suite_page(suite: Suite) -> str:
    """The page of a suite: its description, targets, plot and report."""
    parts = [f"# {suite.title}\n", f"{suite.about}\n", f"```sh\nmake validate SUITE={suite.id}\n```\n"]
    rows = [f"| {' | '.join(_cells(target))} |" for target in suite.targets]
    parts.append("\n".join([_SUITE_HEADING, *rows]) + "\n")
    for name, shows in (("", "predicted against measured"), ("_reliability", "stated against met")):
        image = IMAGES / f"{suite.id}{name}.png"
        if image.exists():
            parts.append(f"![{shows}](../images/accuracy/{image.name})\n")
    reasons = [
        f"- **{target.what}**: {target.why}"
        for target in suite.targets
        if target.why and target.is_met is False
    ]
    if reasons:
        parts.append("\n".join(["## Missed, and why\n", *reasons]) + "\n")
    report = REPORTS / f"{suite.id}.md"
    if report.exists():
        body = report.read_text(encoding="utf-8").partition("\n")[2].strip()
        parts.append(f"## All figures\n\n{_SUITE_NOTE}\n{body}\n")
    return "\n".join(parts)


def _cells(target: Target) -> list[str]:
    """What, left out, target, found, cases, share in the interval, verdict."""
    figures = target.figures
    bound = _mean_and_median(target.mean, target.median, 1) or "none"
    if figures is None:
        return [target.what, target.left_out, bound, "not run", "", "", ""]
    errors = _mean_and_median(figures.mean, figures.median, 2)
    coverage = "" if figures.coverage is None else f"{figures.coverage:.0%}"
    verdict = {True: "met", False: "missed", None: ""}[target.is_met]
    return [target.what, target.left_out, bound, errors, f"{figures.cases:,}", coverage, verdict]


def _mean_and_median(mean: float | None, median: float | None, digits: int) -> str:
    """The mean, the median in brackets, or either alone."""
    parts = [] if mean is None else [f"{mean:.{digits}%}"]
    return " ".join([*parts, *([] if median is None else [f"({median:.{digits}%})"])])


if __name__ == "__main__":
    write_pages()
