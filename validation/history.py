"""The figures of earlier runs, so that a change that makes them worse is seen in review."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import foretrain
from foretrain.facts.user_data import write_atomically
from validation.report import SuiteReport

FILE = Path(__file__).parent / "history.csv"
COLUMNS = ("suite", "cases", "method", "count", "mean", "median", "p90", "bias", "coverage", "version")


def remember(suite: str, report: SuiteReport) -> None:
    """Put the report's figures in place of the suite's earlier ones; git keeps those."""
    rows = [row for row in _read() if row[0] != suite]
    for cases, by_method in report.metrics.items():
        for method, errors in by_method.items():
            coverage = "" if errors.coverage is None else f"{errors.coverage:.4f}"
            figures = (f"{value:.4f}" for value in (errors.mean, errors.median, errors.p90, errors.bias))
            version = foretrain.__version__
            rows.append([suite, cases, method, str(errors.cases), *figures, coverage, version])
    for cases, by_verdict in report.verdicts.items():
        for method, verdict in by_verdict.items():
            share = f"{1 - verdict.share:.4f}"
            rows.append(
                [suite, cases, method, str(verdict.total), share, "", "", "", "", foretrain.__version__]
            )
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(sorted(rows))
    write_atomically(FILE, text.getvalue())


def _read() -> list[list[str]]:
    if not FILE.exists():
        return []
    with FILE.open(newline="", encoding="utf-8") as lines:
        return list(csv.reader(lines))[1:]
