"""`foretrain schedule`: one decision from the present, and a forecast of every job."""

from __future__ import annotations

from dataclasses import dataclass

from foretrain.decoding import SWITCH, option
from foretrain.panels import OUTPUT
from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.cli.terminal import as_far_as_it_is_read, print_answer, spinner
from foretrain.serving.requests import ScheduleRequest


@dataclass(frozen=True, kw_only=True)
class ScheduleOutput(Output):
    """What `schedule` prints."""

    explain: bool = option(
        SWITCH, "Why each job runs as it does or waits, what starts it, what lateness costs.", default=False,
        panel=OUTPUT,
    )  # fmt: skip


def run(request: ScheduleRequest, output: ScheduleOutput) -> None:
    """Decide, forecast and print."""
    from foretrain.serving import verbs

    with spinner("Scheduling") as progress:
        answer = verbs.schedule(request, progress)
    with as_far_as_it_is_read():
        print_answer(answer, output.json, explain=output.explain)


COMMAND = Command(
    ScheduleRequest,
    ScheduleOutput,
    run,
    "Makes one decision from the current state: which nodes are on, which jobs run there, which jobs wait. "
    "Then simulates the policy several times with random prediction errors to forecast the start, end and "
    "cost of every job. For jobs that already run, set the columns running_on (NC24:2@0 means two GPUs of "
    "node 0, an NC24) and done.",
    (
        "foretrain schedule jobs.csv --cluster cluster.yaml --times times.csv --explain",
        "foretrain schedule jobs.csv --cluster cluster.yaml --what-if job.yaml",
    ),
)
