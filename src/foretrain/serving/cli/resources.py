"""`foretrain resources`: bursts and idle gaps of a step."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foretrain.decoding import FILE, option
from foretrain.panels import OUTPUT
from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests import ResourcesRequest


@dataclass(frozen=True, kw_only=True)
class ResourcesOutput(Output):
    """How it is printed."""

    plot: Path | None = option(FILE, "Draw the bursts on a time axis (PNG, SVG or PDF).", panel=OUTPUT)


def run(request: ResourcesRequest, output: ResourcesOutput) -> None:
    """Print the four resources, and the table of changes."""
    from foretrain.answers import Infeasible
    from foretrain.serving.cli.terminal import print_answer, spinner
    from foretrain.serving.rendering.charts import check_format, save_chart
    from foretrain.serving.verbs.consumption import resources
    from foretrain.serving.views.charts import consumption_chart

    if output.plot is not None:
        check_format(output.plot)
    with spinner(f"Predicting {request.model}") as progress:
        answer = resources(request, progress)
    if isinstance(answer, Infeasible):
        print_answer(answer, output.json)
        return
    if output.plot is not None:
        save_chart(consumption_chart(answer), output.plot)
    print_answer(answer, output.json)


COMMAND = Command(
    ResourcesRequest,
    ResourcesOutput,
    run,
    details="Reports burst amount, burst duration and idle duration of compute, memory, network transmit and "
    "network receive for one worker. Derived from the timeline of the step, or predicted by the "
    "Inspector, a graph network trained on measured runs.",
    examples=(
        "foretrain resources resnet50 --on v100-sxm2-16gb:1x2 --network ethernet-10g --strategy ps-sync",
        "foretrain resources resnet50 --on v100-sxm2-16gb --what-if gpu=rtx2080ti --what-if batch=64",
        "foretrain resources gpt2 --on a100-sxm-80gb:8 --strategy fsdp --plot bursts.svg",
    ),
)
