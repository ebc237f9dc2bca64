"""`foretrain converge`: when does a training log reach its target?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from foretrain.decoding import FILE, option
from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests import OUTPUT, ConvergeRequest

if TYPE_CHECKING:
    from foretrain.convergence.forecast import Convergence
    from foretrain.estimates import Quantiles


@dataclass(frozen=True, kw_only=True)
class ConvergeOutput(Output):
    """What `converge` prints and draws."""

    plot: Path | None = option(
        FILE, "Draw the log and its forecast into this .png or .svg file.", panel=OUTPUT
    )


def run(request: ConvergeRequest, output: ConvergeOutput) -> None:
    """Forecast, draw if asked for, and print."""
    from foretrain.serving import verbs
    from foretrain.serving.cli.terminal import print_json

    answer = verbs.converge(request)
    if output.plot is not None:
        from foretrain.serving.plots import draw_convergence

        draw_convergence(answer, output.plot)
    if output.json:
        print_json(answer.to_dict())
    else:
        show(answer, output.plot)


COMMAND = Command(
    ConvergeRequest,
    ConvergeOutput,
    run,
    "Fits families of curves to the log, weights them by how well each predicted the end of the log from its "
    "beginning, and adds what earlier runs show. Steps and the final value have p10, p50 and p90.",
    (
        "foretrain converge log.csv --target loss=0.3",
        "foretrain converge log.csv --target accuracy=94 --planned-steps 90 --history runs/ --plot fan.png",
    ),
)


def show(answer: Convergence, plot: Path | None = None) -> None:
    """Print when the target is reached; `plot` is the file that was drawn."""
    from foretrain.serving.cli.terminal import Column, print_curves, print_line, print_notes, print_table
    from foretrain.serving.wording import as_flags

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
            print_line(f"  - {as_flags(driver)}")
    if answer.neighbours:
        listed = ", ".join(f"{name} ({share:.0%})" for name, share in answer.neighbours.items())
        print_line(f"Nearest earlier runs: {listed}")
    print_notes(answer.notes)
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
