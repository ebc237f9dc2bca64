"""What became of the jobs of a schedule, simulated or real, as text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from foretrain.serving.cli.terminal import Column, print_line, print_table
from foretrain.units import format_duration, format_money

if TYPE_CHECKING:
    from foretrain.scheduling.accounting import JobOutcome, Outcome
    from foretrain.scheduling.comparison import Comparison

_MOST_ROWS = 40
"""Jobs that are listed; of more, those that cost most."""


def show_comparison(answer: Comparison) -> None:
    """Policies side by side, the cheapest first."""
    bound = answer.bound_usd
    print_table(
        [
            Column("policy"),
            Column("total", right=True, style="green"),
            Column("over bound", right=True),
            Column("execution", right=True),
            Column("lateness", right=True),
            Column("late jobs", right=True),
            Column("mean completion", right=True, expendable=1),
        ],
        [
            (
                each.policy,
                format_money(each.total_usd),
                "" if not bound else f"{each.total_usd / bound - 1:+.1%}",
                format_money(each.execution_usd),
                format_money(each.tardiness_usd),
                str(each.late_jobs),
                format_duration(each.mean_completion_seconds),
            )
            for each in sorted(answer.outcomes, key=lambda each: each.total_usd)
        ],
        title="Policies, the cheapest first"
        + ("" if bound is None else f"; lower bound {format_money(bound)}"),
    )


def _bound_text(bound: float | None) -> str:
    return "" if bound is None else f"; lower bound {format_money(bound)}"


def show_outcome(outcome: Outcome) -> None:
    """Cost, lateness and all jobs."""
    jobs = len(outcome.jobs)
    print_line(
        f"{outcome.policy}: {format_money(outcome.total_usd)} for {jobs:,} job{'' if jobs == 1 else 's'}",
        "bold",
    )
    bound = outcome.bound_usd
    if bound is not None:
        over = f" ({outcome.total_usd / bound - 1:+.1%})" if bound > 0 else ""
        print_line(f"  at least {format_money(bound)} under any policy{over}")
    unused = f", {format_money(outcome.unused_usd)} of it billed after use" if outcome.unused_usd > 0 else ""
    print_line(
        f"  nodes {format_money(outcome.execution_usd)}{unused}; lateness "
        f"{format_money(outcome.tardiness_usd)}, {outcome.late_jobs:,} of {jobs:,} jobs late"
    )
    print_line(
        f"  last job ends after {format_duration(outcome.makespan_seconds)}; mean completion "
        f"{format_duration(outcome.mean_completion_seconds)}"
    )
    if outcome.jobs:
        print_line()
        _show_jobs(outcome)


def _show_jobs(outcome: Outcome) -> None:
    jobs = outcome.jobs
    title = "Jobs in order of submission"
    if len(jobs) > _MOST_ROWS:
        jobs = tuple(sorted(jobs, key=lambda each: -each.usd)[:_MOST_ROWS])
        title = f"The {_MOST_ROWS} of {len(outcome.jobs):,} jobs that cost most (all: --json)"
    print_table(
        [
            Column("job", least=12),
            Column("submitted", right=True, expendable=1),
            Column("starts", right=True),
            Column("ends", right=True),
            Column("due", right=True),
            Column("late", right=True),
            Column("nodes", right=True),
            Column("lateness", right=True),
            Column("", least=12),
        ],
        [_row(each) for each in jobs],
        title,
    )


def _row(job: JobOutcome) -> tuple[str, ...]:
    return (
        job.job,
        clock(job.submit_seconds),
        clock(job.start_seconds),
        clock(job.finish_seconds),
        clock(job.deadline_seconds),
        format_duration(job.late_seconds) if job.late_seconds > 0 else "",
        format_money(job.execution_usd),
        format_money(job.tardiness_usd) if job.tardiness_usd > 0 else "",
        f"{job.status.value}: {job.message}" if job.message else "",
    )


def show_decisions(outcomes: Sequence[Outcome]) -> None:
    """How long decisions took."""
    print_line()
    for each in outcomes:
        times = each.decisions
        middle, most = format_duration(times.p50), format_duration(times.max)
        print_line(f"{each.policy}: {times.count:,} decisions, p50 {middle}, max {most}", "dim")


def clock(seconds: float | None) -> str:
    """A moment; nothing where there is none, `never` where it does not come."""
    if seconds is None:
        return ""
    if seconds == 0:
        return "0 s"
    return format_duration(seconds) if math.isfinite(seconds) else "never"
