"""`foretrain run`: the jobs of a file for real, and forecast against bill."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.cli.schedule_text import show_outcome
from foretrain.serving.cli.terminal import (
    Column,
    as_far_as_it_is_read,
    print_json,
    print_line,
    print_table,
    spinner,
)
from foretrain.serving.requests import RunRequest
from foretrain.units import format_duration, format_money

if TYPE_CHECKING:
    from foretrain.backends.answer import RealRun

_MOST_SLOTS = 40


def run(request: RunRequest, output: Output) -> None:
    """Run all jobs, then print what became of them."""
    from foretrain.serving import schedules

    with spinner(f"Running {request.name}") as progress:
        answer = schedules.run(request, progress)
    with as_far_as_it_is_read():
        if output.json:
            print_json(answer.to_dict())
        else:
            show(answer)


COMMAND = Command(
    RunRequest,
    Output,
    run,
    "Each job has a command, with fields such as {gpus}, {checkpoint} and {progress} in braces, or a zoo "
    "model with steps, which is trained on CPUs. Interrupt it at any moment and run it again: jobs that "
    "ended meanwhile are noticed, those that run are kept, none is started twice.",
    (
        "foretrain run jobs.csv --cluster cluster.yaml --times times.csv",
        "foretrain run jobs.csv --cluster cluster.yaml --backend slurm --backend-option partition=gpu",
        "foretrain run jobs.csv --cluster cluster.yaml --backend ray --name nightly --folder /shared/nightly",
    ),
)


def show(answer: RealRun) -> None:
    """What became of the jobs, and the slots before the end of each."""
    show_outcome(answer.outcome)
    print_line()
    _show_slots(answer)


def _show_slots(answer: RealRun) -> None:
    print_table(
        [
            Column("slot", right=True),
            Column("starts", right=True),
            Column("after", least=12),
            Column("forecast", right=True),
            Column("billed", right=True),
        ],
        [
            (
                str(number),
                format_duration(slot.start_seconds),
                f"{slot.event} {slot.subject}".strip(),
                format_money(slot.forecast_usd),
                format_money(slot.billed_usd),
            )
            for number, slot in list(enumerate(answer.slots, 1))[:_MOST_SLOTS]
        ],
        "Forecast against bill, from one decision to the next",
    )
    if len(answer.slots) > _MOST_SLOTS:
        print_line(f"and {len(answer.slots) - _MOST_SLOTS} more (all: --json)", "dim")
    print_line(
        f"Together: {format_money(answer.forecast_usd)} forecast, {format_money(answer.billed_usd)} billed, "
        f"{answer.difference:+.2%}",
        "bold",
    )
