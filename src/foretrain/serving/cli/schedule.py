"""`foretrain schedule`: one decision from the present, and a forecast of every job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from foretrain.decoding import SWITCH, option
from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.cli.schedule_text import clock
from foretrain.serving.cli.terminal import (
    Column,
    as_far_as_it_is_read,
    print_json,
    print_line,
    print_notes,
    print_table,
    spinner,
)
from foretrain.serving.requests import OUTPUT, ScheduleRequest
from foretrain.serving.wording import probability
from foretrain.units import format_duration, format_money

if TYPE_CHECKING:
    from foretrain.estimates import Quantiles
    from foretrain.scheduling.forecast import JobForecast, Schedule, WhatIf

_MOST_DELAYED = 10


@dataclass(frozen=True, kw_only=True)
class ScheduleOutput(Output):
    """What `schedule` prints."""

    explain: bool = option(
        SWITCH, "Why each job runs as it does or waits, what starts it, what lateness costs.", default=False,
        panel=OUTPUT,
    )  # fmt: skip


def run(request: ScheduleRequest, output: ScheduleOutput) -> None:
    """Decide, forecast and print."""
    from foretrain.serving import schedules

    with spinner("Scheduling") as progress:
        answer = schedules.schedule(request, progress)
    with as_far_as_it_is_read():
        if output.json:
            print_json(answer.to_dict())
        else:
            show(answer, output.explain)


COMMAND = Command(
    ScheduleRequest,
    ScheduleOutput,
    run,
    "Decides once, from the present: which nodes are on, which jobs run there, which wait. The policy "
    "then goes on in the simulator, several times with drawn prediction errors, for the start, end and "
    "cost of every job. Jobs that run already have the columns running_on (NC24:2@0: two GPUs of node 0, "
    "an NC24) and done.",
    (
        "foretrain schedule jobs.csv --cluster cluster.yaml --times times.csv --explain",
        "foretrain schedule jobs.csv --cluster cluster.yaml --what-if job.yaml",
    ),
)


def show(answer: Schedule, explain: bool = False) -> None:
    """Print which jobs run where, and when the others will."""
    running = sum(each.runs for each in answer.jobs)
    print_line(
        f"{answer.policy} at {clock(answer.now_seconds)}: {running} of {len(answer.jobs)} jobs run on "
        f"{len(answer.nodes)} node{'' if len(answer.nodes) == 1 else 's'}; all together will cost "
        f"{format_money(answer.total_usd)} from now on",
        "bold",
    )
    if answer.nodes:
        print_line()
        _show_nodes(answer)
    if answer.jobs:
        print_line()
        _show_jobs(answer.jobs)
    for job, message in answer.unfit.items():
        print_line(f"{job} cannot run: {message}", "red")
    if explain:
        _explain(answer.jobs)
    if answer.what_if is not None:
        _show_what_if(answer.what_if, explain)
    print_notes(answer.notes)


def _show_nodes(answer: Schedule) -> None:
    print_table(
        [Column("node", right=True), Column("type"), Column("jobs", least=20)],
        [
            (
                str(number),
                node_type,
                ", ".join(f"{job} ({gpus} GPU{'' if gpus == 1 else 's'})" for job, gpus in shares),
            )
            for number, (node_type, shares) in answer.nodes.items()
        ],
        "Nodes that are on",
    )


def _show_jobs(jobs: tuple[JobForecast, ...]) -> None:
    print_table(
        [
            Column("job", least=12),
            Column("now on"),
            Column("starts", right=True),
            Column("ends", right=True),
            Column("80 % between", right=True, expendable=2),
            Column("due", right=True),
            Column("on time", right=True, expendable=1),
            Column("nodes", right=True),
            Column("lateness", right=True),
        ],
        [_row(each) for each in jobs],
        "Jobs, with the predicted start, end and cost",
    )


def _row(each: JobForecast) -> tuple[str, ...]:
    return (
        each.job,
        "waits" if each.configuration is None else str(each.configuration),
        clock(each.start_seconds.p50),
        clock(each.end_seconds.p50),
        _between(each.end_seconds),
        clock(each.deadline_seconds),
        probability(each.on_time) if each.end_seconds.p10 < each.end_seconds.p90 else _yes(each.on_time),
        format_money(each.execution_usd.p50),
        format_money(each.tardiness_usd.p50) if each.tardiness_usd.p50 > 0 else "",
    )


def _yes(share: float) -> str:
    return "yes" if share else "no"


def _between(interval: Quantiles) -> str:
    if interval.p10 == interval.p90:
        return ""
    return f"{clock(interval.p10)} – {clock(interval.p90)}"


def _explain(jobs: tuple[JobForecast, ...]) -> None:
    for each in jobs:
        print_line()
        print_line(each.job, "bold")
        print_line(f"  {each.reason.why}")
        if each.reason.starts_when:
            print_line(f"  starts {each.reason.starts_when}")
        print_line(f"  {each.reason.lateness}")


def _show_what_if(answer: WhatIf, explain: bool) -> None:
    own = answer.job
    print_line()
    start = "starts at once" if own.runs else f"starts at {clock(own.start_seconds.p50)}"
    print_line(
        f"If {own.job} were submitted now: it {start}, ends at {clock(own.end_seconds.p50)} (due "
        f"{clock(own.deadline_seconds)}) and adds {format_money(answer.added_usd)} to the cost of all",
        "bold cyan",
    )
    for job, seconds in answer.delayed[:_MOST_DELAYED]:
        change = "later" if seconds > 0 else "earlier"
        print_line(f"  {job} ends {format_duration(abs(seconds))} {change}")
    if len(answer.delayed) > _MOST_DELAYED:
        print_line(f"  and {len(answer.delayed) - _MOST_DELAYED} more (all: --json)")
    if not answer.delayed:
        print_line("  no other job ends earlier or later")
    if explain:
        _explain((own,))
