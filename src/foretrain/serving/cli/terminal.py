"""What people see: tables and plots on a terminal, plain aligned text in a pipe, JSON on request."""

from __future__ import annotations

import math
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click

from foretrain.answers import Answer, Infeasible
from foretrain.encoding import to_json
from foretrain.serving.views.blocks import Page
from foretrain.serving.views.wording import as_flags

_GAP = 2
"""Spaces between the columns of a table."""
_MARKERS = ("hd", "dot")
"""Curves differ in more than colour, for those who see none."""


@dataclass(frozen=True, slots=True)
class Column:
    """A table column; numbers go to the right.

    On a narrow terminal a column may shrink to its `least` width by wrapping (0 = never), and columns with
    the highest `expendable` go first (0 = never). In a pipe every column is shown in full.
    """

    title: str
    right: bool = False
    style: str = ""
    least: int = 0
    expendable: int = 0


def on_terminal() -> bool:
    """Whether a person is looking."""
    return sys.stdout.isatty()


def print_json(value: Any) -> None:
    """A result as JSON on standard output."""
    click.echo(to_json(value))


def print_infeasible(answer: Infeasible, as_json: bool) -> None:
    """The answer that nothing satisfies a request, with the tightest constraint."""
    if as_json:
        print_json(answer.to_dict())
    else:
        print_line(as_flags(str(answer)), "bold red")


def print_answer(answer: Answer, as_json: bool, files: Sequence[str] = (), **options: Any) -> None:
    """An answer as JSON, or as its page and a line about each of the `files` written.

    `options` are those of the answer's view.
    """
    if as_json:
        print_json(answer.to_dict())
        return
    from foretrain.serving.rendering.terminal import print_line, print_page
    from foretrain.serving.views import page_of

    print_page(page_of(answer, **options))
    for line in files:
        print_line(line, "green")


def print_page(page: Page) -> None:
    """A page on standard output."""
    from foretrain.serving.rendering import terminal

    terminal.print_page(page)


def print_notes(notes: Iterable[str], indent: str = "") -> None:
    """Remarks of the core, with fields spelled as options."""
    for note in notes:
        print_line(f"{indent}Note: {as_flags(note)}", "yellow")


def print_line(text: str = "", style: str = "") -> None:
    """A line of text; on a terminal styled, and wrapped between words with its indent kept."""
    if not (text and on_terminal()):
        click.echo(_plain(text))
        return
    from rich.console import Console

    indent = text[: len(text) - len(text.lstrip())]
    wrapped = textwrap.fill(
        text.strip(), _terminal_width(), initial_indent=indent, subsequent_indent=indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    Console(highlight=False, soft_wrap=True).print(wrapped, style=style or None, markup=False)


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """A table: drawn with rich on a terminal, aligned columns of plain text in a pipe."""
    if on_terminal():
        _print_rich(columns, rows, title)
    else:
        _print_plain(columns, rows, title)


def fitting(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Indices of the columns that fit in `width`; the most expendable columns are dropped first."""
    needed = [
        min(widest, column.least) if column.least else widest
        for column, widest in zip(columns, _widths(columns, rows), strict=True)
    ]
    kept = list(range(len(columns)))
    while sum(needed[index] + _GAP for index in kept) > width:
        first = max(kept, key=lambda index: columns[index].expendable)
        if columns[first].expendable == 0:
            break
        kept.remove(first)
    return kept


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    return [
        max(len(column.title), *(len(row[index]) for row in rows), 0) for index, column in enumerate(columns)
    ]


def _terminal_width() -> int:
    return shutil.get_terminal_size().columns


def _print_rich(columns: Sequence[Column], rows: Sequence[Sequence[str]], title: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    kept = fitting(columns, rows, _terminal_width())
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0), pad_edge=False)
    for column in (columns[index] for index in kept):
        table.add_column(
            column.title,
            justify="right" if column.right else "left",
            style=column.style or None,
            no_wrap=not column.least,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(row[index]) for index in kept))
    if title:
        print_line(title, "bold")
    Console(highlight=False).print(table)
    hidden = [column.title for index, column in enumerate(columns) if index not in kept]
    if hidden:
        print_line(f"Columns hidden (terminal too narrow): {', '.join(hidden)}; use --json for all", "dim")


def _plain(text: str) -> str:
    """Spaces that keep words together are for those who read; programs look for plain ones."""
    return text.replace("\u00a0", " ")


def _print_plain(columns: Sequence[Column], rows: Sequence[Sequence[str]], title: str) -> None:
    widths = _widths(columns, rows)
    if title:
        click.echo(title)
    for line in ([column.title for column in columns], *rows):
        cells = (
            cell.rjust(width) if column.right else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns, strict=True)
        )
        click.echo(_plain((" " * _GAP).join(cells).rstrip()))


@contextmanager
def spinner(title: str) -> Iterator[Callable[[str], None]]:
    """Something that moves while work takes seconds; the yielded function says what is being done."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status(title) as status:
        yield lambda doing: status.update(f"{title}: {doing}")


@contextmanager
def as_far_as_it_is_read() -> Iterator[None]:
    """Printing that a reader (head, less) may cut short; what comes after, as an exit code, still counts."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_curves(
    title: str,
    x_label: str,
    y_label: str,
    x: Sequence[float],
    curves: dict[str, Sequence[float]],
    from_zero: bool = False,
) -> None:
    """Lines over a shared x axis, drawn with characters; only on a terminal.

    `from_zero` makes both axes start at 0, so that small differences look small.
    """
    if not on_terminal():
        return
    plotext = _canvas()
    for index, (label, y) in enumerate(curves.items()):
        plotext.plot(list(x), list(y), label=label, marker=_MARKERS[index % len(_MARKERS)])
    for set_ticks, set_limits, values in (
        (plotext.xticks, plotext.xlim, [x]),
        (plotext.yticks, plotext.ylim, list(curves.values())),
    ):
        top = max(max(line) for line in values)
        ticks = round_ticks(top)
        set_ticks(ticks, [f"{tick:,.10g}" for tick in ticks])
        if from_zero and top > 0:
            set_limits(0, top)
    plotext.title(title)
    plotext.xlabel(x_label)
    plotext.ylabel(y_label)
    click.echo(plotext.build())


@dataclass(frozen=True, slots=True)
class Points:
    """Points of a plot, with their marker; joined by lines where they follow each other."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    marker: str
    is_line: bool = False


def print_points(title: str, x_label: str, y_label: str, series: Sequence[Points]) -> None:
    """Points on two logarithmic axes, drawn with characters; only on a terminal."""
    if not on_terminal():
        return
    plotext = _canvas()
    for points in series:
        if points.x:
            draw = plotext.plot if points.is_line else plotext.scatter
            x, y = ([math.log10(value) for value in values] for values in (points.x, points.y))
            draw(x, y, label=points.label, marker=points.marker)
    axes = ((plotext.xticks, [p.x for p in series]), (plotext.yticks, [p.y for p in series]))
    for set_ticks, columns in axes:
        ticks = log_ticks([value for column in columns for value in column])
        set_ticks([math.log10(tick) for tick in ticks], [f"{tick:,.10g}" for tick in ticks])
    plotext.title(title)
    plotext.xlabel(x_label)
    plotext.ylabel(y_label)
    click.echo(plotext.build())


def _canvas() -> Any:
    """An empty plot as wide as the terminal allows."""
    import plotext
    from rich.console import Console

    console = Console()
    plotext.clear_figure()
    plotext.theme("clear" if console.no_color else "pro")
    plotext.canvas_color("default")
    plotext.axes_color("default")
    plotext.ticks_color("default")
    plotext.plotsize(min(console.width - 2, 90), 18)
    return plotext


def log_ticks(values: Sequence[float]) -> list[float]:
    """1, 2 and 5 times powers of ten between the least and the most of positive values."""
    low, high = min(values), max(values)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
    inside = [tick for tick in ticks if low <= tick <= high]
    return inside or [low]


def round_ticks(top: float, most: int = 6) -> list[float]:
    """At most `most` round numbers from 0 to `top`, in steps of 1, 2, 2.5 or 5 times a power of ten."""
    if not (math.isfinite(top) and top > 0):
        return [0.0]
    magnitude = 10.0 ** math.floor(math.log10(top / most))
    steps = (factor * magnitude for factor in (1, 2, 2.5, 5, 10, 20))
    step = next(step for step in steps if top / step <= most - 1)
    return [index * step for index in range(math.floor(top / step * (1 + 1e-9)) + 1)]
