"""`docs/accuracy.md`, made of the suites' latest reports."""

from __future__ import annotations

from pathlib import Path

from foretrain.facts.user_data import write_atomically
from validation import targets
from validation.report import SuiteReport, markdown
from validation.scatter import draw

ROOT = Path(__file__).parents[1]
REPORTS = ROOT / "validation" / "reports"
PAGE = ROOT / "docs" / "accuracy.md"
IMAGES = ROOT / "docs" / "images" / "accuracy"

_INTRODUCTION = """# Accuracy

How far foretrain's predictions are from public measurements, and how far other methods are on the same
cases. Nobody here made these measurements; `FORETRAIN_DATA` names the folder they are in. Splits are by
whole family, device or placement, never by row. *mean*, *median* and *p90* are absolute errors as shares of
the measured value; *bias* is the median signed error, positive where the method says too much; an 80 %
interval should hold 75-85 % of the measurements.

Each section was produced by the command below its title. `validation/history.csv` keeps the figures, so
that a change that makes them worse is seen in review.
"""


def write_report(suite: str, report: SuiteReport) -> None:
    """Keep the report of a suite with its plot, and make the page anew."""
    write_atomically(REPORTS / f"{suite}.md", f"{markdown(report).rstrip()}\n")
    IMAGES.mkdir(parents=True, exist_ok=True)
    draw(report, IMAGES / f"{suite}.png")
    write_page()


def write_page() -> None:
    """Put the introduction and all kept reports together."""
    sections = [_INTRODUCTION, f"## Targets\n\n{targets.table()}"]
    for report in sorted(REPORTS.glob("*.md")):
        title, _, body = report.read_text(encoding="utf-8").partition("\n")
        image = IMAGES / f"{report.stem}.png"
        plot = f"\n![predicted against measured](images/accuracy/{image.name})\n" if image.exists() else ""
        sections.append(f"## {title.lstrip('# ')}\n\n`make validate SUITE={report.stem}`\n{plot}{body}")
    write_atomically(PAGE, "\n".join(sections))
