"""`foretrain trace`: what a training step consists of."""

from __future__ import annotations

from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests.predict import TraceRequest


def run(request: TraceRequest, output: Output) -> None:
    """Print what a training step consists of."""
    from foretrain.serving.cli.terminal import print_answer, spinner
    from foretrain.serving.verbs import predicting

    with spinner(f"Tracing {request.model}") as progress:
        answer = predicting.trace(request, progress)
    print_answer(answer, output.json)


COMMAND = Command(
    TraceRequest,
    Output,
    run,
    examples=("foretrain trace resnet50 --batch 32", "foretrain trace gpt2 --seq-len 512 --layers"),
)
