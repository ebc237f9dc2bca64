"""`foretrain converge`: when does a training log reach its target?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foretrain.decoding import FILE, option
from foretrain.panels import OUTPUT
from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests.learn import ConvergeRequest


@dataclass(frozen=True, kw_only=True)
class ConvergeOutput(Output):
    """What `converge` prints and draws."""

    plot: Path | None = option(FILE, "Plot the log and its forecast to this .png or .svg file.", panel=OUTPUT)


def run(request: ConvergeRequest, output: ConvergeOutput) -> None:
    """Forecast, draw if asked for, and print."""
    from foretrain.serving.cli.terminal import print_answer
    from foretrain.serving.verbs import learning

    answer = learning.converge(request)
    if output.plot is not None:
        from foretrain.serving.rendering.charts import save_chart
        from foretrain.serving.views.charts import fan_chart

        save_chart(fan_chart(answer), output.plot)
    print_answer(answer, output.json, () if output.plot is None else (f"Plot: {output.plot}",))


COMMAND = Command(
    ConvergeRequest,
    ConvergeOutput,
    run,
    "Fits several families of curves to the log and weights them by out-of-sample error: how well each "
    "predicted the end of the log from its beginning. Earlier runs (--history) serve as a prior. Reports "
    "p10, p50 and p90 of the steps to target and of the final value.",
    (
        "foretrain converge log.csv --target loss=0.3",
        "foretrain converge log.csv --target accuracy=94 --planned-steps 90 --history runs/ --plot fan.png",
    ),
)
