"""Numbers with colour behind them: on a terminal; the same numbers as plain text in a pipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foretrain.serving.cli.terminal import Column, fitting, on_terminal, print_line, print_table

_BLACK, _WHITE = 16, 231
_RAMP = (
    (231, _BLACK), (195, _BLACK), (153, _BLACK), (117, _BLACK), (75, _BLACK), (32, _BLACK),
    (25, _WHITE), (24, _WHITE), (17, _WHITE),
)  # fmt: skip
"""From pale to deep blue among the 256 colours terminals share, each with the colour of text it carries."""


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
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0), pad_edge=False)
    for index in kept:
        table.add_column(
            columns[index].title, justify="right" if columns[index].right else "left", no_wrap=True
        )
    for name, cells in rows:
        shown = [Text(name)]
        for index, cell in ((index, cells[index - 1]) for index in kept if index):
            style = "dim" if cell.value is None else _style(shade(cell.value, values), cell.is_marked)
            shown.append(Text(cell.text.rjust(widths[index]), style=style))
        table.add_row(*shown)
    print_line(title, "bold")
    console.print(table)
    hidden = [columns[index].title for index in range(len(columns)) if index not in kept]
    if hidden:
        print_line(f"Not shown for want of width: {', '.join(hidden)} (all of it: --json)", "dim")


def _style(level: int, is_marked: bool) -> str:
    background, foreground = _RAMP[level]
    return f"{'bold underline ' if is_marked else ''}color({foreground}) on color({background})"
