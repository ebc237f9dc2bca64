"""`foretrain converge`: when does a training log reach its target?"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretrain.serving.cli.parameters import Json

if TYPE_CHECKING:
    from foretrain.convergence.forecast import Convergence
    from foretrain.estimates import Quantiles

LogFile = Annotated[
    Path, typer.Argument(help="CSV, JSONL, TensorBoard events, trainer_state.json or Keras' CSVLogger.")
]
TargetOption = Annotated[str, typer.Option("--target", help="METRIC=VALUE, e.g. loss=0.3 or accuracy=0.94.")]
Planned = Annotated[
    float | None, typer.Option("--planned-steps", help="Where the run is to end, in the log's own unit.")
]
ScheduleOption = Annotated[
    str | None,
    typer.Option("--schedule", help="Learning rate: linear, linear:0.4, cosine, step:0.5,0.75, constant."),
]
HistoryOption = Annotated[
    Path | None, typer.Option("--history", help="Folder of earlier logs of the same task and metric.")
]
DirectionOption = Annotated[
    str | None, typer.Option("--direction", help="up or down: which way the metric gets better, if unclear.")
]
Plot = Annotated[
    Path | None, typer.Option("--plot", help="Draw the log and the fan into this .png or .svg file.")
]


def converge(
    log: LogFile,
    target: TargetOption,
    planned_steps: Planned = None,
    schedule: ScheduleOption = None,
    history: HistoryOption = None,
    direction: DirectionOption = None,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """When does a training log reach its target?

    Fits families of curves to the log, weighs them by how well each told the log's end from its beginning,
    and adds what earlier runs say. Steps and the value at the end come as p10, p50 and p90.

    \b
    Examples:
      foretrain converge log.csv --target loss=0.3
      foretrain converge log.csv --target accuracy=94 --planned-steps 90 --history runs/ --plot fan.png
    """
    from foretrain.convergence.from_log import LogRequest
    from foretrain.convergence.from_log import converge as core
    from foretrain.serving.cli.terminal import print_json

    answer = core(LogRequest(log, target, planned_steps, schedule, history, direction))
    if plot is not None:
        from foretrain.serving.plots import draw_convergence

        draw_convergence(answer, plot)
    if json:
        print_json(answer)
    else:
        _show(answer, plot)


def _show(answer: Convergence, plot: Path | None) -> None:
    from foretrain.serving.cli.terminal import Column, print_curves, print_line, print_table

    print_line(f"{_heading(answer)}: {answer.verdict}", "bold")
    print_line(f"Seen:   {answer.seen_points} points to {answer.unit} {answer.seen_steps:,.6g}")
    print_line(f"Method: {answer.method}")
    print_line()
    rows = [(f"{answer.unit}s to {answer.target}", *map(_step, _levels(answer.steps)))]
    if answer.epochs is not None and answer.unit != "epoch":
        rows.append((f"epochs to {answer.target}", *map(_step, _levels(answer.epochs))))
    ending = f"{answer.target.metric} at {answer.unit} {answer.final_step:,.0f}"
    rows.append((ending, *(f"{value:.4g}" for value in _levels(answer.final_value))))
    print_table([Column("what"), *(Column(level, right=True) for level in ("p10", "p50", "p90"))], rows)
    print_line()
    if answer.drivers:
        print_line("What drives the uncertainty:")
        for driver in answer.drivers:
            print_line(f"  - {driver}")
    if answer.neighbours:
        listed = ", ".join(f"{name} ({share:.0%})" for name, share in answer.neighbours.items())
        print_line(f"Nearest earlier runs: {listed}")
    for note in answer.notes:
        print_line(f"Note: {note}")
    steps = [*answer.log.steps, *answer.fan.steps]
    held = list(answer.log.values)
    print_curves(
        f"{answer.target.metric}: log, then p10 and p90", answer.unit, answer.target.metric, steps,
        {"p90": [*held, *answer.fan.p90], "p10": [*held, *answer.fan.p10]},
    )  # fmt: skip
    if plot is not None:
        print_line(f"Plot: {plot}")


def _heading(answer: Convergence) -> str:
    if not answer.reaches:
        return "Not reached"
    return "Reached" if answer.steps.p90 <= answer.seen_steps else "To be reached"


def _levels(quantiles: Quantiles) -> tuple[float, float, float]:
    return quantiles.p10, quantiles.p50, quantiles.p90


def _step(value: float) -> str:
    if not math.isfinite(value):
        return "not by then"
    return f"{value:,.5g}" if value < 100 else f"{value:,.0f}"
