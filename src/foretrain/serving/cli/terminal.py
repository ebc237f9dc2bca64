"""What people see: tables and plots on a terminal, plain aligned text in a pipe, JSON on request."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import typer

from foretrain.serving.encoding import to_json


@dataclass(frozen=True, slots=True)
class Column:
    """A table column; numbers go to the right."""

    title: str
    right: bool = False
    style: str = ""


def on_terminal() -> bool:
    """Whether a person is looking."""
    return sys.stdout.isatty()


def print_json(value: Any) -> None:
    """A result as JSON on standard output."""
    typer.echo(to_json(value))


def print_line(text: str = "", style: str = "") -> None:
    """One line of text, styled on a terminal."""
    if style and on_terminal():
        from rich.console import Console

        Console(highlight=False).print(text, style=style, markup=False)
    else:
        typer.echo(text)


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """A table: drawn with rich on a terminal, aligned columns of plain text in a pipe."""
    if on_terminal():
        _print_rich(columns, rows, title)
    else:
        _print_plain(columns, rows, title)


def _print_rich(columns: Sequence[Column], rows: Sequence[Sequence[str]], title: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, header_style="bold")
    for column in columns:
        table.add_column(
            column.title,
            justify="right" if column.right else "left",
            style=column.style or None,
            no_wrap=column.right,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console(highlight=False).print(table)


def _print_plain(columns: Sequence[Column], rows: Sequence[Sequence[str]], title: str) -> None:
    lines = [[column.title for column in columns], *rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    if title:
        typer.echo(title)
    for line in lines:
        cells = (
            cell.rjust(width) if column.right else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns, strict=True)
        )
        typer.echo("  ".join(cells).rstrip())


@contextmanager
def spinner(title: str) -> Iterator[Callable[[str], None]]:
    """Something that moves while work takes seconds; the yielded function says what is being done."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status(title) as status:
        yield lambda doing: status.update(f"{title}: {doing}")


def print_curves(
    title: str, x_label: str, y_label: str, x: Sequence[float], curves: dict[str, Sequence[float]]
) -> None:
    """Lines over a shared x axis, drawn with characters; only on a terminal."""
    if not on_terminal():
        return
    import plotext
    from rich.console import Console

    console = Console()
    plotext.clear_figure()
    plotext.theme("clear" if console.no_color else "pro")
    plotext.canvas_color("default")
    plotext.axes_color("default")
    plotext.ticks_color("default")
    plotext.plotsize(min(console.width - 2, 90), 18)
    for label, y in curves.items():
        plotext.plot(list(x), list(y), label=label)
    plotext.title(title)
    plotext.xlabel(x_label)
    plotext.ylabel(y_label)
    typer.echo(plotext.build())
