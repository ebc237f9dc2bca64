"""`foretrain offers`: what machines cost to rent."""

from __future__ import annotations

from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests import OffersRequest


def run(request: OffersRequest, output: Output) -> None:
    """List offers, or import a file of newer ones."""
    from foretrain.serving import verbs
    from foretrain.serving.cli.terminal import print_answer

    print_answer(verbs.offers(request), output.json)


COMMAND = Command(
    OffersRequest,
    Output,
    run,
    examples=(
        "foretrain offers --gpu h100 --count 8 --sort price --cloud aws,gcp --spot",
        "foretrain offers --refresh prices_2026_09.csv",
    ),
)
