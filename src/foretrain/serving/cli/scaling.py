"""`foretrain scaling`: from a few timed configurations of a job to all the others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretrain.serving.cli.parameters import Json

if TYPE_CHECKING:
    from foretrain.learning.scaling.answer import ScalingAnswer, ScalingRequest

Timings = Annotated[
    Path,
    typer.Argument(help="CSV of placement (4+4: GPUs on each node) or nodes,devices; batch; step_seconds."),
]
At = Annotated[
    Path | None, typer.Option("--at", help="CSV of the configurations to tell: the same without the time.")
]
FormOption = Annotated[
    str,
    typer.Option("--form", help="physical, ring, pollux, optimus or seed; all compares them."),
]
Cluster = Annotated[
    str, typer.Option("--cluster", help="A cluster known by other jobs' timings, e.g. aws-4xt4.")
]
WorkloadName = Annotated[
    str | None, typer.Option("--workload", help="What is trained: its prediction is a prior. Needs --on.")
]
On = Annotated[
    str | None, typer.Option("--on", help="Hardware with full nodes, e.g. v100-sxm2-16gb:8. With --workload.")
]
Precision = Annotated[str, typer.Option("--precision", help="Of the workload: fp32, tf32, fp16 or bf16.")]
NetworkLink = Annotated[
    str | None, typer.Option("--network", help="LINK[:CARDS] between nodes, where --on does not say it.")
]
Plot = Annotated[Path | None, typer.Option("--plot", help="Draw the step times into this .png or .svg file.")]


def scaling(
    timings: Timings,
    at: At = None,
    form: FormOption = "physical",
    cluster: Cluster = "",
    workload: WorkloadName = None,
    on: On = None,
    precision: Precision = "fp32",
    network: NetworkLink = None,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Few timings of a job, all its configurations.

    Fits compute and synchronisation to the timings, tells the step time of other placements and batch sizes
    (per device), and which configuration to time next. Even one timing will do: other jobs say the rest.

    \b
    Examples:
      foretrain scaling timings.csv
      foretrain scaling timings.csv --at configs.csv --form all --plot scaling.png
      foretrain scaling timings.csv --workload resnet50 --on aws:g4dn.12xlarge --precision fp16
    """
    from foretrain.learning.scaling.answer import ScalingRequest as Request
    from foretrain.learning.scaling.answer import predict_scaling
    from foretrain.learning.scaling.configurations import read_configurations, read_timings
    from foretrain.serving.cli.terminal import print_json

    asked = read_configurations(at) if at is not None else ()
    request = Request(read_timings(timings), asked, form, cluster)
    if workload is not None or on is not None:
        request = _with_prediction(request, workload, on, precision, network)
    answer = predict_scaling(request)
    if plot is not None:
        from foretrain.serving.plots import draw_step_scaling

        draw_step_scaling(answer, plot)
    if json:
        print_json(answer)
    else:
        _show(answer, plot)


def _with_prediction(
    request: ScalingRequest, model: str | None, on: str | None, precision: str, network: str | None
) -> ScalingRequest:
    """The same request with what is predicted from model and hardware as what is known beforehand."""
    from dataclasses import replace

    from foretrain.errors import InvalidRequest
    from foretrain.facts.hardware import hardware
    from foretrain.learning.scaling.from_hardware import PredictedJob
    from foretrain.prediction.scenario import Parallelism
    from foretrain.serving.cli.terminal import spinner
    from foretrain.workloads.requests import WorkloadRequest, workload_of

    if model is None or on is None:
        raise InvalidRequest("a prediction needs both: --workload MODEL and --on HARDWARE")
    with spinner(f"Predicting {model}"):
        job = PredictedJob(
            workload_of(WorkloadRequest(model, precision=precision)),
            hardware(on),
            Parallelism(network=network),
        )
        return replace(
            request,
            predict_at=job.seconds,
            prediction_error=job.error(request.timed),
            devices_per_node=job.devices_per_node,
        )


def _show(answer: ScalingAnswer, plot: Path | None) -> None:
    from foretrain.serving.cli.terminal import Column, print_line, print_table
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
    for note in answer.notes:
        print_line(f"Note: {note}")
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
