"""The suites and their targets, with the figures of the latest run of each suite."""

from __future__ import annotations

import csv
import math
import tomllib
from dataclasses import dataclass
from pathlib import Path

from validation.history import COLUMNS, FILE

TARGETS = Path(__file__).parent / "targets.toml"
EXPECTATIONS = Path(__file__).parent / "expectations.toml"


@dataclass(frozen=True)
class Figures:
    """Errors of one method on one set of cases, as `history.csv` keeps them."""

    cases: int
    mean: float
    median: float | None
    coverage: float | None
    p90: float | None = None


@dataclass(frozen=True)
class Weakness:
    """Cases with larger errors than the question they belong to."""

    what: str
    suite: str
    figure: float


@dataclass(frozen=True)
class Expectation:
    """A question of a user and the errors to expect; of `is_share`, the share of wrong answers."""

    question: str
    suite: str
    figures: Figures
    is_share: bool
    weak: tuple[Weakness, ...]


@dataclass(frozen=True)
class Target:
    """The bound on one method on one set of cases, and its latest figures; None for a suite not run.

    `left_out` names what no fit saw. A target without `mean` and `median` reports a finding. `why` is the
    reason looked for, and what was tried, where a target is missed.
    """

    suite: str
    what: str
    left_out: str
    cases: str
    method: str
    mean: float | None = None
    median: float | None = None
    why: str = ""
    figures: Figures | None = None

    @property
    def is_met(self) -> bool | None:
        """Whether the figures are within the bounds; None without a bound or without figures."""
        if self.figures is None or (self.mean is None and self.median is None):
            return None
        median = self.figures.median or 0.0
        return self.figures.mean <= _bound(self.mean) and median <= _bound(self.median)


@dataclass(frozen=True)
class Suite:
    """A suite: its area, title and description, and its targets."""

    id: str
    area: str
    title: str
    about: str
    targets: tuple[Target, ...]


def suites() -> tuple[Suite, ...]:
    """All suites in the order of `targets.toml`, with their latest figures."""
    declared = tomllib.loads(TARGETS.read_text(encoding="utf-8"))
    figures = _figures()
    targets = [
        Target(**target, figures=figures.get((target["suite"], target["cases"], target["method"])))
        for target in declared["target"]
    ]
    return tuple(
        Suite(**suite, targets=tuple(target for target in targets if target.suite == suite["id"]))
        for suite in declared["suite"]
    )


def expectations() -> tuple[Expectation, ...]:
    """What users can expect, with the latest figures; a case that no suite reports is an error."""
    declared = tomllib.loads(EXPECTATIONS.read_text(encoding="utf-8"))
    figures = _figures()
    rows = []
    for row in declared["expectation"]:
        is_share = row.get("is_share", False)
        weak = []
        for case in row["weak"]:
            suite = case.get("suite", row["suite"])
            weaker = figures[suite, case["cases"], case.get("method", row["method"])]
            shown = weaker.mean if is_share else getattr(weaker, case.get("figure", "median"))
            weak.append(Weakness(case["what"], suite, shown))
        of_all = figures[row["suite"], row["cases"], row["method"]]
        rows.append(Expectation(row["question"], row["suite"], of_all, is_share, tuple(weak)))
    return tuple(rows)


def _bound(value: float | None) -> float:
    return math.inf if value is None else value


def _figures() -> dict[tuple[str, str, str], Figures]:
    with FILE.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    assert not rows or set(rows[0]) == set(COLUMNS)
    return {
        (row["suite"], row["cases"], row["method"]): Figures(
            cases=int(row["count"]),
            mean=float(row["mean"]),
            median=float(row["median"]) if row["median"] else None,
            coverage=float(row["coverage"]) if row["coverage"] else None,
            p90=float(row["p90"]) if row["p90"] else None,
        )
        for row in rows
    }
