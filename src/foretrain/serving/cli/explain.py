"""`foretrain explain`: every fact used, with its source and kind."""

from __future__ import annotations

from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests import ExplainRequest


def run(request: ExplainRequest, output: Output) -> None:
    """Print every fact about a name."""
    from foretrain.serving import verbs
    from foretrain.serving.cli.terminal import print_answer

    print_answer(verbs.explain(request), output.json)


COMMAND = Command(
    ExplainRequest,
    Output,
    run,
    examples=(
        "foretrain explain h100-sxm",
        "foretrain explain aws:p4d.24xlarge",
        "foretrain explain nvlink4",
    ),
)
