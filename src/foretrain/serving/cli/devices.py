"""`foretrain devices`: what hardware is known."""

from __future__ import annotations

from contextlib import nullcontext

from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests import DevicesRequest


def run(request: DevicesRequest, output: Output) -> None:
    """List devices, or one in full."""
    from foretrain.serving import verbs
    from foretrain.serving.cli.terminal import print_answer, spinner
    from foretrain.serving.verbs.predicting import no_progress

    with spinner("Measuring this machine") if request.measure_here else nullcontext(no_progress) as progress:
        answer = verbs.devices(request, progress)
    print_answer(answer, output.json)


COMMAND = Command(
    DevicesRequest,
    Output,
    run,
    examples=(
        "foretrain devices",
        "foretrain devices h100-sxm",
        "foretrain devices a100 --json",
    ),
)
