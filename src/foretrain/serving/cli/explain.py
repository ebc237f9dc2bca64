"""`foretrain explain`: every fact used, with its source and kind."""

from __future__ import annotations

from typing import Annotated

import typer

from foretrain.serving.cli.parameters import Json

Name = Annotated[
    str, typer.Argument(help="A device, family, link, node, provider, source, or offer PROVIDER:INSTANCE.")
]


def explain(name: Name, json: Json = False) -> None:
    """Show every fact about a name, how it is known, and where it comes from.

    Examples: foretrain explain h100-sxm | foretrain explain aws:p4d.24xlarge | foretrain explain nvlink4
    """
    from foretrain.facts import explanation
    from foretrain.serving.cli.devices import format_fact
    from foretrain.serving.cli.terminal import Column, print_json, print_line, print_table

    found = explanation.explain(name)
    if json:
        print_json(found)
        return
    print_line(f"{found.name}: {found.title}", "bold")
    several = len({statement.subject for statement in found.statements}) > 1
    rows = [
        (
            *((statement.subject,) if several else ()),
            statement.quantity + ("" if statement.preferred else " (not preferred)"),
            format_fact(statement.quantity, statement.value),
            statement.kind,
            statement.source,
            statement.note,
        )
        for statement in found.statements
    ]
    columns = [
        Column("quantity"),
        Column("value", right=True),
        Column("kind"),
        Column("source"),
        Column("note"),
    ]
    if rows:
        print_line()
        print_table([Column("of"), *columns] if several else columns, rows)
    print_line("\nSources:")
    for source in found.sources:
        print_line(f"  {source.id}: {source.title}")
        print_line(f"    {source.locator} (retrieved {source.retrieved}; {source.licence})")
