"""What the suites are held to, beside what they last found."""

from __future__ import annotations

import csv
import math
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from validation.history import COLUMNS, FILE

TARGETS = Path(__file__).parent / "targets.toml"


def table() -> str:
    """All targets with the figures of the latest run of their suite, as a table of text."""
    heading = "| what | target: mean (median) | found: mean (median) | in the 80 % interval | |"
    return "\n".join([heading, "|---|---|---|---|---|", *_rows()]) + "\n"


def _rows() -> Iterator[str]:
    found = _figures()
    for target in tomllib.loads(TARGETS.read_text(encoding="utf-8"))["target"]:
        row = found.get((target["suite"], target["cases"], target["method"]))
        wanted = _wanted(target)
        if row is None:
            yield f"| {target['says']} | {wanted} | not run | | |"
            continue
        mean, median = float(row["mean"]), float(row["median"] or 0.0)
        is_met = mean <= target.get("mean", math.inf) and median <= target.get("median", math.inf)
        coverage = f"{float(row['coverage']):.0%}" if row["coverage"] else ""
        verdict = "met" if is_met else "missed"
        figures = f"{mean:.2%} ({median:.2%})"
        yield f"| {target['says']} | {wanted} | {figures} | {coverage} | {verdict} |"


def _wanted(target: dict[str, Any]) -> str:
    """The mean, the median in brackets, or either alone."""
    mean, median = target.get("mean"), target.get("median")
    said = [] if mean is None else [_share(mean)]
    return " ".join([*said, *([] if median is None else [f"({_share(median)})"])])


def _share(value: float) -> str:
    return f"{value:.1%}"


def _figures() -> dict[tuple[str, str, str], dict[str, str]]:
    with FILE.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    assert not rows or set(rows[0]) == set(COLUMNS)
    return {(row["suite"], row["cases"], row["method"]): row for row in rows}
