"""The report of simulated or real schedules: cost, who ran where, the cluster over time, all jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from foretrain.scheduling.accounting import Comparison, JobOutcome, Outcome
from foretrain.serving.html.page import (
    KeyFigure,
    Markup,
    code,
    element,
    key_figures,
    notes,
    page,
    paragraph,
    section,
)
from foretrain.serving.html.tables import Cell, Column, table
from foretrain.serving.rendering.html import chart_figure
from foretrain.serving.views.schedule_charts import schedule_chart
from foretrain.serving.views.wording import sentence, together
from foretrain.units import format_duration, format_money

_MOST_JOBS = 1_000
"""Jobs listed in a page; of more, those that cost most."""


def schedule_report(answer: Outcome | Comparison, command: str = "", made_on: str = "") -> str:
    """One self-contained page; of several policies the cheapest is shown in full."""
    compared = answer if isinstance(answer, Comparison) else None
    outcome = answer.best if isinstance(answer, Comparison) else answer
    jobs = len(outcome.jobs)
    made = f"Made on {made_on}" if made_on else "Made"
    return page(
        title=f"{jobs:,} job{'' if jobs == 1 else 's'} under {outcome.policy}",
        kicker=" · ".join(part for part in ("foretrain simulate", made_on) if part),
        opening=(_lead(outcome), _figures(outcome)),
        sections=(
            section("Policies compared", _policies(compared)) if compared is not None else Markup(""),
            section("Schedule", Markup(chart_figure(schedule_chart(outcome)))),
            section("Jobs", *_jobs(outcome)),
            section("Notes", notes([sentence(note) for note in answer.notes])),
        ),
        footer=(paragraph(f"{made} by ", code(command)) if command else paragraph(f"{made} by foretrain."),),
    )


def _lead(outcome: Outcome) -> Markup:
    if not outcome.jobs:
        return paragraph("There are no jobs.", class_="lead")
    bound = outcome.bound_usd
    over = f" No policy can do it for less than {format_money(bound)}." if bound is not None else ""
    late = "No job is late" if not outcome.late_jobs else f"{outcome.late_jobs:,} end late"
    return paragraph(
        element("strong", format_money(outcome.total_usd)),
        f": {format_money(outcome.execution_usd)} for nodes and {format_money(outcome.tardiness_usd)} for "
        f"lateness. {late}; the last ends after {together(format_duration(outcome.makespan_seconds))}.{over}",
        class_="lead",
    )


def _figures(outcome: Outcome) -> Markup:
    bound = outcome.bound_usd
    figures = [
        KeyFigure("total", format_money(outcome.total_usd), _over(outcome.total_usd, bound)),
        KeyFigure("nodes", format_money(outcome.execution_usd),
                  f"{format_money(outcome.unused_usd)} billed after use" if outcome.unused_usd else ""),
        KeyFigure("lateness", format_money(outcome.tardiness_usd),
                  f"{outcome.late_jobs:,} of {len(outcome.jobs):,} jobs late"),
        KeyFigure("mean completion", format_duration(outcome.mean_completion_seconds), "after submission"),
    ]  # fmt: skip
    return key_figures(figures)


def _over(total: float, bound: float | None) -> str:
    return "" if not bound else f"{total / bound - 1:+.1%} over the lower bound"


def _policies(answer: Comparison) -> Markup:
    best = min(each.total_usd for each in answer.outcomes)
    rows = sorted(answer.outcomes, key=lambda each: each.total_usd)
    columns = [
        Column("policy"), Column("total", right=True), Column("against the cheapest", right=True),
        Column("against the bound", right=True), Column("nodes", right=True), Column("lateness", right=True),
        Column("late jobs", right=True), Column("mean completion", right=True),
        Column("decision, p50", right=True), Column("decision, max", right=True),
    ]  # fmt: skip
    return table(
        columns,
        [
            (
                each.policy,
                Cell(format_money(each.total_usd), each.total_usd),
                f"{each.total_usd / best - 1:+.1%}" if best > 0 else "",
                f"{each.total_usd / answer.bound_usd - 1:+.1%}" if answer.bound_usd else "",
                Cell(format_money(each.execution_usd), each.execution_usd),
                Cell(format_money(each.tardiness_usd), each.tardiness_usd),
                f"{each.late_jobs:,}",
                Cell(format_duration(each.mean_completion_seconds), each.mean_completion_seconds),
                Cell(format_duration(each.decisions.p50), each.decisions.p50),
                Cell(format_duration(each.decisions.max), each.decisions.max),
            )
            for each in rows
        ],
        marked=frozenset({0}),
        sortable=True,
        label="Policies compared",
    )


def _jobs(outcome: Outcome) -> Sequence[Markup]:
    jobs = outcome.jobs
    remark = Markup("")
    if len(jobs) > _MOST_JOBS:
        jobs = tuple(sorted(jobs, key=lambda each: -each.usd)[:_MOST_JOBS])
        remark = paragraph(
            f"The {_MOST_JOBS:,} of {len(outcome.jobs):,} jobs that cost most.", class_="caption"
        )
    columns = [
        Column("job"), Column("submitted", right=True), Column("starts", right=True),
        Column("ends", right=True), Column("due", right=True), Column("late", right=True),
        Column("nodes", right=True), Column("lateness", right=True), Column("starts of it", right=True),
        Column("remark"),
    ]  # fmt: skip
    late = frozenset(number for number, each in enumerate(jobs) if each.late_seconds > 0)
    return (
        remark,
        table(
            columns, [_row(each) for each in jobs], sortable=True, label="Jobs", marked=late, class_="dense"
        ),
    )


def _row(job: JobOutcome) -> tuple[Cell | str, ...]:
    def moment(seconds: float | None) -> Cell | str:
        return "" if seconds is None else Cell(format_duration(seconds), seconds)

    def amount(value: float, text: Callable[[float], str]) -> Cell | str:
        return Cell(text(value), value) if value > 0 else Cell("", 0.0)

    return (
        job.job,
        moment(job.submit_seconds),
        moment(job.start_seconds),
        moment(job.finish_seconds),
        moment(job.deadline_seconds),
        amount(job.late_seconds, format_duration),
        amount(job.execution_usd, format_money),
        amount(job.tardiness_usd, format_money),
        str(job.starts),
        f"{job.status.value}: {job.message}" if job.message else "",
    )
