"""`foretrain scaling`: from a few timed configurations of a job to all the others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foretrain.decoding import FILE, option
from foretrain.panels import OUTPUT
from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests.plan import ScalingRequest


@dataclass(frozen=True, kw_only=True)
class ScalingOutput(Output):
    """What `scaling` prints and draws."""

    plot: Path | None = option(FILE, "Draw the step times into this .png or .svg file.", panel=OUTPUT)


def run(request: ScalingRequest, output: ScalingOutput) -> None:
    """Predict the other configurations, draw if asked for, and print."""
    from foretrain.serving.cli.terminal import print_answer, spinner
    from foretrain.serving.verbs import predicting

    with spinner("Scaling") as progress:
        answer = predicting.scaling(request, progress)
    if output.plot is not None:
        from foretrain.serving.rendering.charts import save_chart
        from foretrain.serving.views.charts import step_scaling_chart

        save_chart(step_scaling_chart(answer), output.plot)
    print_answer(answer, output.json, () if output.plot is None else (f"Plot: {output.plot}",))


COMMAND = Command(
    ScalingRequest,
    ScalingOutput,
    run,
    "Fits compute and synchronisation times, predicts the step time of other placements and batch sizes "
    "(per device), and suggests which configuration to time next. One timing is enough; timings of other "
    "jobs serve as a prior.",
    (
        "foretrain scaling timings.csv",
        "foretrain scaling timings.csv --at configs.csv --form all --plot scaling.png",
        "foretrain scaling timings.csv --workload resnet50 --on aws:g4dn.12xlarge --precision fp16",
    ),
)
