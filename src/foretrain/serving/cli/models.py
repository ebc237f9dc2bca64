"""`foretrain models`: which models can be trained, and what else can be given as one."""

from __future__ import annotations

from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests import ModelsRequest


def run(request: ModelsRequest, output: Output) -> None:
    """List the zoo and the forms of a model."""
    from foretrain.serving import verbs
    from foretrain.serving.cli.terminal import print_answer

    print_answer(verbs.models(request), output.json)


COMMAND = Command(
    ModelsRequest,
    Output,
    run,
    examples=(
        "foretrain models",
        "foretrain models --search llama",
        "foretrain models --search detection --json",
    ),
)
