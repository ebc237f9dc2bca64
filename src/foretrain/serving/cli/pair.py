"""`foretrain pair`: would two jobs share a device and a link well?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foretrain.decoding import FILE, option
from foretrain.panels import OUTPUT
from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests import PairRequest


@dataclass(frozen=True, kw_only=True)
class PairOutput(Output):
    """How it is printed."""

    plot: Path | None = option(FILE, "Draw both jobs on a time axis (PNG, SVG or PDF).", panel=OUTPUT)


def run(request: PairRequest, output: PairOutput) -> None:
    """Print slowdowns and verdict."""
    from foretrain.answers import Infeasible
    from foretrain.serving.cli.terminal import print_answer, spinner
    from foretrain.serving.rendering.charts import check_format, save_chart
    from foretrain.serving.verbs.consumption import pair
    from foretrain.serving.views.charts import pair_chart

    if output.plot is not None:
        check_format(output.plot)
    with spinner("Predicting both jobs") as progress:
        answer = pair(request, progress)
    if isinstance(answer, Infeasible):
        print_answer(answer, output.json)
        return
    if output.plot is not None:
        save_chart(pair_chart(answer), output.plot)
    print_answer(answer, output.json)


COMMAND = Command(
    PairRequest,
    PairOutput,
    run,
    details="Overlays the resource usage of two jobs. Where both need the GPU, its memory or the link at the "
    "same time, they share it fairly. Kernels of different processes take turns.",
    examples=(
        "foretrain pair resnet50 bert-base --on v100-sxm2-16gb:1x2 --network ethernet-10g --batch 32,8",
        "foretrain pair mnist-cnn voice-conv --on t4 --json",
    ),
)
