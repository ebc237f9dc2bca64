"""`foretrain models`: which models can be trained, and what else can be given as one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests import ModelsRequest

if TYPE_CHECKING:
    from foretrain.workloads.zoo.catalogue import ZooEntry


def run(request: ModelsRequest, output: Output) -> None:
    """List the zoo and the forms of a model. Nothing here needs torch."""
    from foretrain.serving.cli.terminal import print_json, print_page
    from foretrain.serving.views.facts import models_page
    from foretrain.workloads.readers import ACCEPTED
    from foretrain.workloads.zoo.catalogue import list_models

    entries = list_models(request.search)
    if output.json:
        forms = [{"form": form, "accepts": what} for form, what in ACCEPTED.items()]
        print_json({"models": [_as_object(entry) for entry in entries], "forms": forms})
    else:
        print_page(models_page(entries, dict(list(ACCEPTED.items())[1:])))  # the first form is the zoo


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


def _as_object(entry: ZooEntry) -> dict[str, Any]:
    sizes = {"batch": entry.batch, "seq_len": entry.seq_len, "image_size": entry.image_size}
    return {
        "name": entry.name,
        "aliases": entry.aliases,
        "family": entry.family,
        "task": entry.task,
        "parameters": entry.parameters,
        "defaults": {size: extent.default for size, extent in sizes.items() if extent is not None},
        "reference": entry.reference,
    }
