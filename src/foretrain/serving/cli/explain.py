"""`foretrain explain`: every fact used, with its source and kind."""

from __future__ import annotations

from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests import ExplainRequest


def run(request: ExplainRequest, output: Output) -> None:
    """Print every fact about a name."""
    from foretrain.facts import explanation
    from foretrain.serving.cli.terminal import print_json, print_page
    from foretrain.serving.views.facts import explain_page

    answer = explanation.explain(request.name)
    if output.json:
        print_json(answer)
    else:
        print_page(explain_page(answer))


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
