"""What an accuracy suite found: its cases, and how far off each method is on them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from foretrain.estimates import Quantiles

_WORST = 10


@dataclass(frozen=True)
class Case:
    """One measurement and what each method says of it. `group` is what the split is by."""

    name: str
    group: str
    measured: float
    predicted: Mapping[str, float]
    interval: Quantiles | None = None


@dataclass(frozen=True)
class Metrics:
    """Errors of one method, as shares of the measured value.

    `bias` is the median signed error: positive where the method says too much. `coverage` is the share of
    measurements inside the 80 % interval, None for a method without one.
    """

    cases: int
    mean: float
    median: float
    p90: float
    bias: float
    coverage: float | None = None


@dataclass(frozen=True)
class Verdicts:
    """Yes-or-no answers of one method: how many were right, of how many."""

    right: int
    total: int

    @property
    def share(self) -> float:
        """The share that was right."""
        return self.right / self.total if self.total else math.nan


@dataclass(frozen=True)
class Table:
    """A further table of a report: a title, the headings, and rows of text."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class SuiteReport:
    """The result of one suite. `metrics` and `verdicts` are keyed by the set of cases, then by method.

    `reliability` has probabilities: as stated on average, the share that came true, and of how many.
    """

    suite: str
    cases: tuple[Case, ...]
    metrics: Mapping[str, Mapping[str, Metrics]]
    verdicts: Mapping[str, Mapping[str, Verdicts]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    reliability: tuple[tuple[float, float, int], ...] = ()


def metrics(cases: Sequence[Case], method: str, with_interval: bool = False) -> Metrics:
    """How far off `method` is on `cases`."""
    errors = [case.predicted[method] / case.measured - 1 for case in cases]
    sizes = [abs(error) for error in errors]
    inside = [
        case.interval.p10 <= case.measured <= case.interval.p90 for case in cases if case.interval is not None
    ]
    return Metrics(
        cases=len(cases),
        mean=statistics.fmean(sizes),
        median=statistics.median(sizes),
        p90=quantile(sizes, 0.9),
        bias=statistics.median(errors),
        coverage=sum(inside) / len(inside) if with_interval and inside else None,
    )


def quantile(values: Iterable[float], share: float) -> float:
    """The value below which `share` of the values lie, interpolated linearly between neighbours."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


def markdown(report: SuiteReport) -> str:
    """The report as tables of text."""
    lines = [f"### {report.suite}", ""]
    for name, by_method in report.metrics.items():
        lines += [f"**{name}**", "", "| method | cases | mean | median | p90 | bias | in the 80 % interval |"]
        lines.append("|---|---|---|---|---|---|---|")
        for method, errors in by_method.items():
            coverage = "" if errors.coverage is None else f"{errors.coverage:.0%}"
            lines.append(
                f"| {method} | {errors.cases} | {errors.mean:.1%} | {errors.median:.1%} | {errors.p90:.1%} "
                f"| {errors.bias:+.1%} | {coverage} |"
            )
        lines.append("")
    for name, by_verdict in report.verdicts.items():
        lines += [f"**{name}**", "", "| method | right | of | share |", "|---|---|---|---|"]
        lines += [f"| {method} | {v.right} | {v.total} | {v.share:.1%} |" for method, v in by_verdict.items()]
        lines.append("")
    for table in report.tables:
        lines += [f"**{table.title}**", "", *table_lines(table), ""]
    lines += _worst(report.cases)
    lines += [f"- {note}" for note in report.notes]
    return "\n".join(lines) + "\n"


def table_lines(table: Table) -> list[str]:
    """A table in Markdown, without its title."""
    rule = "|".join("---" for _ in table.headings)
    return [f"| {' | '.join(row)} |" for row in (table.headings,)] + [
        f"|{rule}|",
        *(f"| {' | '.join(row)} |" for row in table.rows),
    ]


def judged_method(cases: Sequence[Case]) -> str | None:
    """The method a suite is about: the first each of its cases names."""
    return next(iter(cases[0].predicted), None) if cases else None


def _worst(cases: Sequence[Case]) -> list[str]:
    """The cases with the largest errors of the judged method."""
    method = judged_method(cases) or ""
    predicted = [case for case in cases if case.predicted.get(method, 0.0) > 0]
    if len(predicted) <= _WORST:
        return []
    ordered = sorted(predicted, key=lambda case: -abs(math.log(case.predicted[method] / case.measured)))
    heading = [f"**largest errors: {method}**", "", "| case | group | measured | predicted |"]
    rows = (
        f"| {case.name} | {case.group} | {case.measured:.4g} | {case.predicted[method]:.4g} |"
        for case in ordered[:_WORST]
    )
    return [*heading, "|---|---|---|---|", *rows, ""]
