"""`foretrain links`: which links and networks are known, and how fast they are."""

from __future__ import annotations

from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests import LinksRequest


def run(request: LinksRequest, output: Output) -> None:
    """List links with their rates, or explain a topology."""
    from foretrain.serving import verbs
    from foretrain.serving.cli.terminal import print_answer

    print_answer(verbs.links(request), output.json)


COMMAND = Command(
    LinksRequest,
    Output,
    run,
    examples=(
        "foretrain links",
        "foretrain links --kind nvlink",
        "foretrain links --topology topology.txt --device a100-sxm-80gb",
        "foretrain links --json",
    ),
)
