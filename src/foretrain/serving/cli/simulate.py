"""`foretrain simulate`: many jobs on a cluster over their whole horizon, under one policy or several."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from foretrain.decoding import FILE, option
from foretrain.panels import OUTPUT
from foretrain.serving.cli.frame import Command, Output, check_file, write_report
from foretrain.serving.cli.terminal import as_far_as_it_is_read, print_answer, spinner
from foretrain.serving.requests import SimulateRequest

if TYPE_CHECKING:
    from foretrain.scheduling.accounting import Comparison, Outcome


@dataclass(frozen=True, kw_only=True)
class SimulateOutput(Output):
    """What `simulate` prints and writes."""

    html: Path | None = option(FILE, "Write a self-contained HTML report with charts.", panel=OUTPUT)
    plot: Path | None = option(FILE, "Plot the Gantt chart to this .png or .svg file.", panel=OUTPUT)


def run(request: SimulateRequest, output: SimulateOutput) -> None:
    """Simulate, write the files asked for, and print."""
    from foretrain.serving import verbs

    _check_files(output)
    with spinner("Simulating") as progress:
        answer = verbs.simulate(request, progress)
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


COMMAND = Command(
    SimulateRequest,
    SimulateOutput,
    run,
    "At every submission, completion, failure and price change, the policy decides which nodes are on and "
    "which jobs run there, with how many GPUs. The cost is the price of active nodes plus weight times "
    "lateness. Run times are given (--times) or predicted from the model of each job.",
    (
        "foretrain simulate jobs.csv --cluster cluster.yaml --times times.csv",
        "foretrain simulate jobs.csv --cluster cluster.yaml --policy auto,edf,fifo --html schedule.html",
        "foretrain simulate --generate mixed --nodes 5 --seed 1 --policy all",
    ),
)
