"""`foretrain scaling`: from a few timed configurations of a job to all the others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from foretrain.decoding import FILE, option
from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests import OUTPUT, ScalingRequest

if TYPE_CHECKING:
    from foretrain.learning.scaling.answer import ScalingAnswer


@dataclass(frozen=True, kw_only=True)
class ScalingOutput(Output):
    """What `scaling` prints and draws."""

    plot: Path | None = option(FILE, "Draw the step times into this .png or .svg file.", panel=OUTPUT)


def run(request: ScalingRequest, output: ScalingOutput) -> None:
    """Predict the other configurations, draw if asked for, and print."""
    from foretrain.serving import verbs
    from foretrain.serving.cli.terminal import print_json, spinner

    with spinner("Scaling") as progress:
        answer = verbs.scaling(request, progress)
    if output.plot is not None:
        from foretrain.serving.plots import draw_step_scaling

        draw_step_scaling(answer, output.plot)
    if output.json:
        print_json(answer.to_dict())
    else:
        show(answer, output.plot)


COMMAND = Command(
    ScalingRequest,
    ScalingOutput,
    run,
    "Fits compute and synchronisation to the timings, predicts the step time of other placements and batch "
    "sizes (per device), and names the configuration to time next. One timing is enough: the rest comes from "
    "other jobs.",
    (
        "foretrain scaling timings.csv",
        "foretrain scaling timings.csv --at configs.csv --form all --plot scaling.png",
        "foretrain scaling timings.csv --workload resnet50 --on aws:g4dn.12xlarge --precision fp16",
    ),
)


def show(answer: ScalingAnswer, plot: Path | None = None) -> None:
    """Print the fitted model and its predictions; `plot` is the file that was drawn."""
    from foretrain.serving.cli.terminal import Column, print_line, print_notes, print_table
    from foretrain.units import format_duration

    model = answer.model
    print_line(
        f"Form {model.form}, fitted to {model.timings} timing{'s' if model.timings > 1 else ''}: "
        f"{model.mean_residual:.1%} off on them",
        "bold",
    )
    print_line(f"Known beforehand: {model.prior}")
    print_line()
    print_table(
        [
            Column("placement", least=9),
            *(Column(title, right=True) for title in ("GPUs", "batch", "step", "p10", "p90")),
            Column("samples/s", right=True, expendable=2),
            Column("timed", right=True, expendable=1),
        ],
        [
            (
                row.placement,
                str(row.devices),
                str(row.batch),
                format_duration(row.step_seconds.p50),
                format_duration(row.step_seconds.p10),
                format_duration(row.step_seconds.p90),
                f"{row.samples_per_second:,.0f}",
                "" if row.timed_seconds is None else format_duration(row.timed_seconds),
            )
            for row in answer.predictions
        ],
    )
    if answer.comparison:
        print_line()
        _show_forms(answer)
    if answer.time_next:
        print_line()
        _show_next(answer)
    print_notes(answer.notes)
    if plot is not None:
        print_line(f"Plot: {plot}")


def _show_forms(answer: ScalingAnswer) -> None:
    from foretrain.serving.cli.terminal import Column, print_table

    print_table(
        [
            Column("form"),
            Column("parameters", right=True),
            Column("mean", right=True),
            Column("worst", right=True),
        ],
        [
            (row.form, str(row.parameters), f"{row.mean_error:.1%}", f"{row.largest_error:.1%}")
            for row in sorted(answer.comparison, key=lambda row: row.mean_error)
        ],
        title="Errors on timings left out",
    )


def _show_next(answer: ScalingAnswer) -> None:
    from foretrain.serving.cli.terminal import Column, print_table

    print_table(
        [Column("placement"), Column("batch", right=True), Column("intervals narrower by", right=True)],
        [(row.placement, str(row.batch), f"{row.narrower:.0%}") for row in answer.time_next],
        title="Worth timing next",
    )
