"""`foretrain profile`: measured times of operators and layers beside the predicted ones."""

from __future__ import annotations

from dataclasses import dataclass

from foretrain.decoding import SWITCH, option
from foretrain.panels import OUTPUT
from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests.measure import ProfileRequest


@dataclass(frozen=True, kw_only=True)
class ProfileOutput(Output):
    """What `profile` prints and writes."""

    layers: bool = option(SWITCH, "Print all layers, not only the longest.", default=False, panel=OUTPUT)


def run(request: ProfileRequest, output: ProfileOutput) -> None:
    """Measure or read, compare, print."""
    from foretrain.serving.cli.terminal import print_answer, spinner
    from foretrain.serving.verbs import profiling

    with spinner(f"Profiling {request.model}") as progress:
        answer = profiling.profile(request, progress)
    print_answer(answer, output.json, all_layers=output.layers)


COMMAND = Command(
    ProfileRequest,
    ProfileOutput,
    run,
    "Runs the model under torch.profiler for a few seconds, or reads a trace exported by torch.profiler on "
    "another machine. Prints measured and predicted times side by side.",
    (
        "foretrain profile resnet18 --here --batch 4 --image-size 64",
        "foretrain profile model.py:build --here",
        "foretrain profile resnet50 --trace trace.json.gz --on rtx3090 --batch 64",
    ),
)
