"""`foretrain links`: which links and networks are known, and how fast they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests import LinksRequest

if TYPE_CHECKING:
    from foretrain.facts.links import Link

_NOMINAL = "nominal_bytes_per_second_per_direction"
_ACHIEVABLE = "achievable_bytes_per_second_per_direction"


def run(request: LinksRequest, output: Output) -> None:
    """List links with their rates."""
    from foretrain.facts.links import listed
    from foretrain.serving.cli.terminal import print_json

    chosen = listed(request.kind)
    if output.json:
        print_json([_as_object(link) for link in chosen])
    else:
        _show(chosen)


COMMAND = Command(
    LinksRequest,
    Output,
    run,
    examples=("foretrain links", "foretrain links --kind nvlink", "foretrain links --json"),
)


def _as_object(link: Link) -> dict[str, Any]:
    return {
        "id": link.id,
        "name": link.name,
        "kind": link.kind,
        "aliases": link.aliases,
        "facts": link.sheet.to_dict(),
    }


def _show(links: tuple[Link, ...]) -> None:
    from foretrain.serving.cli.terminal import Column, print_line, print_table
    from foretrain.units import format_bandwidth, format_duration

    rows = []
    for link in links:
        nominal, reached, latency = map(link.sheet.fact, (_NOMINAL, _ACHIEVABLE, "latency_seconds"))
        rows.append(
            (
                link.id,
                link.kind,
                "-" if nominal is None else format_bandwidth(float(nominal.value)),
                "-" if reached is None else format_bandwidth(float(reached.value)),
                "-" if latency is None else format_duration(float(latency.value)),
                "-" if reached is None else f"{reached.source} ({reached.kind.value})",
            )
        )
    columns = [
        Column("link", style="bold"),
        Column("kind"),
        Column("nominal", right=True),
        Column("reached", right=True),
        Column("latency", right=True),
        Column("source of the rate reached", expendable=1),
    ]
    print_table(columns, rows)
    print_line(
        f"{len(links)} links. Rates are of one direction; an nvlink is one link, an nvswitch all of a device."
    )
    print_line("Where a figure comes from: foretrain explain LINK")
