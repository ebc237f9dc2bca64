"""`foretrain devices`, `models`, `links`, `offers` and `explain`: what is known, and from which source."""

from __future__ import annotations

from contextlib import nullcontext

from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.cli.terminal import print_answer, printing, spinner
from foretrain.serving.requests.facts import (
    DevicesRequest,
    ExplainRequest,
    LinksRequest,
    ModelsRequest,
    OffersRequest,
)


def _devices(request: DevicesRequest, output: Output) -> None:
    """List devices, or one in full."""
    from foretrain.serving.verbs import listing
    from foretrain.serving.verbs.predicting import no_progress

    with spinner("Measuring this machine") if request.measure_here else nullcontext(no_progress) as progress:
        answer = listing.devices(request, progress)
    print_answer(answer, output.json)


COMMANDS = {
    "devices": Command(
        DevicesRequest,
        Output,
        _devices,
        examples=("foretrain devices", "foretrain devices h100-sxm", "foretrain devices a100 --json"),
    ),
    "models": Command(
        ModelsRequest,
        Output,
        printing("listing.models"),
        examples=(
            "foretrain models",
            "foretrain models --search llama",
            "foretrain models --search detection --json",
        ),
    ),
    "links": Command(
        LinksRequest,
        Output,
        printing("listing.links"),
        examples=(
            "foretrain links",
            "foretrain links --kind nvlink",
            "foretrain links --topology topology.txt --device a100-sxm-80gb",
            "foretrain links --json",
        ),
    ),
    "offers": Command(
        OffersRequest,
        Output,
        printing("listing.offers"),
        examples=(
            "foretrain offers --gpu h100 --count 8 --sort price --cloud aws,gcp --spot",
            "foretrain offers --refresh prices_2026_09.csv",
        ),
    ),
    "explain": Command(
        ExplainRequest,
        Output,
        printing("listing.explain"),
        examples=(
            "foretrain explain h100-sxm",
            "foretrain explain aws:p4d.24xlarge",
            "foretrain explain nvlink4",
        ),
    ),
}
