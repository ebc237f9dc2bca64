"""`foretrain explain`: every fact used, with its source and kind."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests import ExplainRequest

if TYPE_CHECKING:
    from foretrain.facts.explanation import Explanation, Statement


def run(request: ExplainRequest, output: Output) -> None:
    """Print every fact about a name."""
    from foretrain.facts import explanation
    from foretrain.serving.cli.terminal import on_terminal, print_json, print_line

    answer = explanation.explain(request.name)
    if output.json:
        print_json(answer)
        return
    print_line(f"{answer.name}: {answer.title}", "bold")
    if on_terminal():
        _show_by_source(answer)
    elif answer.statements:
        _show_table(answer)
    print_line()
    print_line("Sources:")
    for source in answer.sources:
        print_line(f"  {source.id}: {source.title}")
        print_line(f"    {source.locator} (retrieved {source.retrieved}; {source.licence})")


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


def _show_by_source(explanation: Explanation) -> None:
    """For a terminal: one short table per source, headed by what its facts have in common."""
    from foretrain.serving.cli.terminal import Column, print_line, print_table

    several = _several(explanation)
    for (kind, source), group in groupby(explanation.statements, lambda fact: (fact.kind, fact.source)):
        facts = list(group)
        notes = {fact.note for fact in facts}
        shared = notes.pop() if len(notes) == 1 else ""
        print_line()
        print_line(f"{kind}, from {source}" + (f": {shared}" if shared else ""))
        columns = [Column("quantity", least=24), Column("value", right=True)]
        rows = [_cells(fact) for fact in facts]
        if several:
            columns = [Column("of", least=16), *columns]
            rows = [(fact.subject, *row) for fact, row in zip(facts, rows, strict=True)]
        if notes:
            columns = [*columns, Column("note", least=20)]
            rows = [(*row, fact.note) for fact, row in zip(facts, rows, strict=True)]
        print_table(columns, rows)


def _show_table(explanation: Explanation) -> None:
    """For a pipe: one line per fact, with all columns."""
    from foretrain.serving.cli.terminal import Column, print_line, print_table

    several = _several(explanation)
    titles = [*(["of"] if several else []), "quantity", "value", "kind", "source", "note"]
    rows = [
        (*([fact.subject] if several else []), *_cells(fact), fact.kind, fact.source, fact.note)
        for fact in explanation.statements
    ]
    print_line()
    print_table([Column(title, right=title == "value") for title in titles], rows)


def _cells(fact: Statement) -> tuple[str, ...]:
    from foretrain.serving.cli.devices import format_fact

    name = fact.quantity + ("" if fact.preferred else " (not preferred)")
    return name, format_fact(fact.quantity, fact.value)


def _several(explanation: Explanation) -> bool:
    return len({fact.subject for fact in explanation.statements}) > 1
