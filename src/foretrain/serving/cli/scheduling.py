"""`foretrain schedule`, `simulate` and `run`: many jobs on a cluster.

`schedule` decides once and forecasts every job, `simulate` plays the whole horizon under one policy or
several, `run` starts the jobs and compares forecast and bill.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from foretrain.decoding import FILE, SWITCH, option
from foretrain.panels import OUTPUT
from foretrain.serving.cli.frame import Command, Output, check_file, write_report
from foretrain.serving.cli.terminal import as_far_as_it_is_read, print_answer, spinner
from foretrain.serving.requests.schedule import RunRequest, ScheduleRequest, SimulateRequest

if TYPE_CHECKING:
    from foretrain.scheduling.accounting import Comparison, Outcome


@dataclass(frozen=True, kw_only=True)
class ScheduleOutput(Output):
    """What `schedule` prints."""

    explain: bool = option(
        SWITCH, "Why each job runs as it does or waits, what starts it, what lateness costs.", default=False,
        panel=OUTPUT,
    )  # fmt: skip


def _schedule(request: ScheduleRequest, output: ScheduleOutput) -> None:
    """Decide, forecast and print."""
    from foretrain.serving.verbs import scheduling

    with spinner("Scheduling") as progress:
        answer = scheduling.schedule(request, progress)
    with as_far_as_it_is_read():
        print_answer(answer, output.json, explain=output.explain)


@dataclass(frozen=True, kw_only=True)
class SimulateOutput(Output):
    """What `simulate` prints and writes."""

    html: Path | None = option(FILE, "Write a self-contained HTML report with charts.", panel=OUTPUT)
    plot: Path | None = option(FILE, "Plot the Gantt chart to this .png or .svg file.", panel=OUTPUT)


def _simulate(request: SimulateRequest, output: SimulateOutput) -> None:
    """Simulate, write the files asked for, and print."""
    from foretrain.serving.verbs import scheduling

    _check_files(output)
    with spinner("Simulating") as progress:
        answer = scheduling.simulate(request, progress)
    written = _write_files(answer, output)
    with as_far_as_it_is_read():
        print_answer(answer, output.json, written)


def _check_files(output: SimulateOutput) -> None:
    """Refuse files that cannot be written before anything is simulated."""
    check_file("--html", output.html)
    if output.plot is not None:
        from foretrain.serving.rendering.charts import check_format

        check_format(output.plot)


def _write_files(answer: Outcome | Comparison, output: SimulateOutput) -> list[str]:
    """Write the files asked for; a line about each."""
    lines = []
    if output.html is not None:
        write_report(output.html, answer, "simulate")
        lines.append(f"Report: {output.html}")
    if output.plot is not None:
        from foretrain.scheduling.accounting import Comparison
        from foretrain.serving.rendering.charts import save_chart
        from foretrain.serving.views.schedule_charts import schedule_chart

        best = answer.best if isinstance(answer, Comparison) else answer
        save_chart(schedule_chart(best), output.plot)
        lines.append(f"Plot: {output.plot}")
    return lines


def _run(request: RunRequest, output: Output) -> None:
    """Run all jobs, then print what became of them."""
    from foretrain.serving.verbs import scheduling

    with spinner(f"Running {request.name}") as progress:
        answer = scheduling.run(request, progress)
    with as_far_as_it_is_read():
        print_answer(answer, output.json)


_SCHEDULE = Command(
    ScheduleRequest,
    ScheduleOutput,
    _schedule,
    "Makes one decision from the current state: which nodes are on, which jobs run there, which jobs wait. "
    "Then simulates the policy several times with random prediction errors to forecast the start, end and "
    "cost of every job. For jobs that already run, set the columns running_on (NC24:2@0 means two GPUs of "
    "node 0, an NC24) and done.",
    (
        "foretrain schedule jobs.csv --cluster cluster.yaml --times times.csv --explain",
        "foretrain schedule jobs.csv --cluster cluster.yaml --what-if job.yaml",
    ),
)
_SIMULATE = Command(
    SimulateRequest,
    SimulateOutput,
    _simulate,
    "At every submission, completion, failure and price change, the policy decides which nodes are on and "
    "which jobs run there, with how many GPUs. The cost is the price of active nodes plus weight times "
    "lateness. Run times are given (--times) or predicted from the model of each job.",
    (
        "foretrain simulate jobs.csv --cluster cluster.yaml --times times.csv",
        "foretrain simulate jobs.csv --cluster cluster.yaml --policy auto,edf,fifo --html schedule.html",
        "foretrain simulate --generate mixed --nodes 5 --seed 1 --policy all",
    ),
)
_RUN = Command(
    RunRequest,
    Output,
    _run,
    "Each job has a command, with placeholders such as {gpus}, {checkpoint} and {progress}, or a zoo model "
    "with steps, which is trained on CPUs. You can interrupt the scheduler at any time and run it again: "
    "it picks up finished and running jobs and starts no job twice. Reports the bill next to the forecast.",
    (
        "foretrain run jobs.csv --cluster cluster.yaml --times times.csv",
        "foretrain run jobs.csv --cluster cluster.yaml --backend slurm --backend-option partition=gpu",
        "foretrain run jobs.csv --cluster cluster.yaml --backend ray --name nightly --folder /shared/nightly",
    ),
)
COMMANDS = {"schedule": _SCHEDULE, "simulate": _SIMULATE, "run": _RUN}
