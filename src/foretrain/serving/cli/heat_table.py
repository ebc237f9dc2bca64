"""Numbers with colour behind them: on a terminal; the same numbers as plain text in a pipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foretrain.serving.cli.terminal import Column, fitting, on_terminal, print_line, print_table

_RAMP = (
    ("#f7fbff", "black"), ("#deebf7", "black"), ("#c6dbef", "black"), ("#9ecae1", "black"),
    ("#6baed6", "black"), ("#4292c6", "black"), ("#2171b5", "white"), ("#08519c", "white"),
    ("#08306b", "white"),
)  # fmt: skip
"""From pale to deep along one line of lightness (ColorBrewer's Blues), each with a text colour it carries."""


@dataclass(frozen=True, slots=True)
class Shaded:
    """A number as it is written, its value for the colour (None: no colour), and whether it stands out."""

    text: str
    value: float | None
    is_marked: bool = False


def print_heat_table(
    columns: Sequence[Column], rows: Sequence[tuple[str, Sequence[Shaded]]], title: str
) -> None:
    """A row for each name; the colours run over all rows from the least value to the most."""
    texts = [(name, *(cell.text for cell in cells)) for name, cells in rows]
    if not on_terminal():
        print_table(columns, texts, title)
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from foretrain.serving.html.heat_map import shade

    console = Console(highlight=False)
    kept = fitting(columns, texts, console.width)
    values = [cell.value for _, cells in rows for cell in cells if cell.value is not None]
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0), pad_edge=False)
    for index in kept:
        table.add_column(
            columns[index].title, justify="right" if columns[index].right else "left", no_wrap=True
        )
    for name, cells in rows:
        shown = [Text(name)]
        for cell in (cells[index - 1] for index in kept if index):
            style = "" if cell.value is None else _style(shade(cell.value, values), cell.is_marked)
            shown.append(Text(cell.text, style=style or "dim"))
        table.add_row(*shown)
    print_line(title, "bold")
    console.print(table)
    hidden = [columns[index].title for index in range(len(columns)) if index not in kept]
    if hidden:
        print_line(f"Not shown for want of width: {', '.join(hidden)} (all of it: --json)", "dim")


def _style(level: int, is_marked: bool) -> str:
    background, foreground = _RAMP[level]
    return f"{'bold underline ' if is_marked else ''}{foreground} on {background}"
