"""`foretrain links`: which links and networks are known, how fast they are, and what a topology says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests import LinksRequest

if TYPE_CHECKING:
    from foretrain.facts.links import Link


def run(request: LinksRequest, output: Output) -> None:
    """List links with their rates, or explain a topology."""
    from foretrain.facts.links import list_links
    from foretrain.serving.cli.terminal import print_json, print_page
    from foretrain.serving.verbs.listing import explain_topology
    from foretrain.serving.views.facts import links_page, topology_page

    explained = explain_topology(request)
    if explained is not None:
        if output.json:
            print_json(explained.to_dict())
        else:
            print_page(topology_page(explained))
        return
    chosen = list_links(request.kind)
    if output.json:
        print_json([_as_object(link) for link in chosen])
    else:
        print_page(links_page(chosen))


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


def _as_object(link: Link) -> dict[str, Any]:
    return {
        "id": link.id,
        "name": link.name,
        "kind": link.kind,
        "aliases": link.aliases,
        "facts": link.sheet.to_dict(),
    }
