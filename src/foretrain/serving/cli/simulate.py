"""`foretrain simulate`: many jobs on a cluster over their whole horizon, under one policy or several."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from foretrain.decoding import FILE, option
from foretrain.serving.cli.frame import Command, Output, check_file, command_line, write_file
from foretrain.serving.cli.terminal import (
    Column,
    as_far_as_it_is_read,
    print_json,
    print_line,
    print_notes,
    print_table,
    spinner,
)
from foretrain.serving.requests import OUTPUT, SimulateRequest
from foretrain.units import format_duration, format_money

if TYPE_CHECKING:
    from foretrain.scheduling.accounting import JobOutcome, Outcome
    from foretrain.scheduling.comparison import Comparison

_MOST_ROWS = 40
"""Jobs that are listed; of more, those that cost most."""


@dataclass(frozen=True, kw_only=True)
class SimulateOutput(Output):
    """What `simulate` prints and writes."""

    html: Path | None = option(FILE, "Write a report with charts as one self-contained page.", panel=OUTPUT)
    plot: Path | None = option(FILE, "Draw the Gantt chart into this .png or .svg file.", panel=OUTPUT)


def run(request: SimulateRequest, output: SimulateOutput) -> None:
    """Simulate, write the files asked for, and print."""
    from foretrain.serving import schedules

    _check_files(output)
    with spinner("Simulating") as progress:
        answer = schedules.simulate(request, progress)
    written = _write_files(answer, output)
    with as_far_as_it_is_read():
        if output.json:
            print_json(answer.to_dict())
        else:
            _show(answer)
            for text in written:
                print_line(text, "green")


def _check_files(output: SimulateOutput) -> None:
    """Refuse files that cannot be written before anything is simulated."""
    check_file("--html", output.html)
    if output.plot is not None:
        from foretrain.serving.plots import check_format

        check_format(output.plot)


def _write_files(answer: Outcome | Comparison, output: SimulateOutput) -> list[str]:
    """Write the files asked for; a line about each."""
    lines = []
    if output.html is not None:
        from datetime import date

        from foretrain.serving.html.schedule_report import schedule_report

        write_file("--html", output.html, schedule_report(answer, command_line(), date.today().isoformat()))
        lines.append(f"Report: {output.html}")
    if output.plot is not None:
        from foretrain.scheduling.comparison import Comparison
        from foretrain.serving.schedule_plots import draw_schedule

        draw_schedule(answer.best if isinstance(answer, Comparison) else answer, output.plot)
        lines.append(f"Plot: {output.plot}")
    return lines


COMMAND = Command(
    SimulateRequest,
    SimulateOutput,
    run,
    "Decides at every submission, completion, failure and price change which nodes are on, of which type, and "
    "which jobs run there with how many GPUs. Cost is the price of nodes while they are on plus weight times "
    "lateness. Jobs have given times (--times) or a model whose times are predicted on every node type.",
    (
        "foretrain simulate jobs.csv --cluster cluster.yaml --times times.csv",
        "foretrain simulate jobs.csv --cluster cluster.yaml --policy auto,edf,fifo --html schedule.html",
        "foretrain simulate --generate mixed --nodes 5 --seed 1 --policy all",
    ),
)


def _show(answer: Outcome | Comparison) -> None:
    from foretrain.scheduling.comparison import Comparison

    if isinstance(answer, Comparison):
        _show_comparison(answer)
        shown = answer.best
        print_line()
    else:
        shown = answer
    _show_outcome(shown)
    print_notes(answer.notes)


def _show_comparison(answer: Comparison) -> None:
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
            Column("decision p50", right=True, expendable=2),
            Column("max", right=True, expendable=2),
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
                format_duration(each.decisions.p50),
                format_duration(each.decisions.max),
            )
            for each in sorted(answer.outcomes, key=lambda each: each.total_usd)
        ],
        title="Policies, the cheapest first" + ("" if bound is None else f"; lower bound {format_money(bound)}"),
    )


def _show_outcome(outcome: Outcome) -> None:
    jobs = len(outcome.jobs)
    print_line(
        f"{outcome.policy}: {format_money(outcome.total_usd)} for {jobs:,} job{'' if jobs == 1 else 's'}", "bold"
    )
    bound = outcome.bound_usd
    if bound is not None:
        over = f" ({outcome.total_usd / bound - 1:+.1%})" if bound > 0 else ""
        print_line(f"  at least {format_money(bound)} under any policy{over}")
    unused = f", {format_money(outcome.unused_usd)} of it billed after use" if outcome.unused_usd > 0 else ""
    print_line(f"  nodes {format_money(outcome.execution_usd)}{unused}; lateness "
               f"{format_money(outcome.tardiness_usd)}, {outcome.late_jobs:,} of {jobs:,} jobs late")  # fmt: skip
    print_line(
        f"  last job ends after {format_duration(outcome.makespan_seconds)}; mean completion "
        f"{format_duration(outcome.mean_completion_seconds)}; {outcome.decisions.count:,} decisions, "
        f"p50 {format_duration(outcome.decisions.p50)}, max {format_duration(outcome.decisions.max)}"
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
        format_duration(job.submit_seconds),
        "" if job.start_seconds is None else format_duration(job.start_seconds),
        "" if job.finish_seconds is None else format_duration(job.finish_seconds),
        format_duration(job.deadline_seconds),
        format_duration(job.late_seconds) if job.late_seconds > 0 else "",
        format_money(job.execution_usd),
        format_money(job.tardiness_usd) if job.tardiness_usd > 0 else "",
        f"{job.status.value}: {job.message}" if job.message else "",
    )
