"""Pages on a terminal: rich tables and plots where a person is looking, plain aligned text in a pipe.

`plain_text` is also `str(answer)`. Rich and plotext are imported when a terminal is drawn on.
"""

from __future__ import annotations

import math
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from foretrain.serving.views.blocks import (
    Block,
    Break,
    Cell,
    Chart,
    Code,
    Column,
    Figures,
    Heading,
    Notes,
    Page,
    Row,
    Sentence,
    Table,
    Tone,
    shade,
    text_of,
    value_of,
)

_GAP = 2
"""Spaces between the columns of a table."""
_INDENT = "  "
_STYLES: Mapping[Tone, str] = {
    Tone.PLAIN: "",
    Tone.NAME: "bold",
    Tone.KEY: "cyan",
    Tone.GOOD: "green",
    Tone.WARNING: "yellow",
    Tone.BAD: "red",
    Tone.LIMIT: "magenta",
    Tone.MINOR: "dim",
}
_MARKERS = ("hd", "dot")
"""Curves differ in more than colour, for those who see none."""
_BLACK, _WHITE = 16, 231
_RAMP = (
    (231, _BLACK), (195, _BLACK), (153, _BLACK), (117, _BLACK), (75, _BLACK), (32, _BLACK),
    (25, _WHITE), (24, _WHITE), (17, _WHITE),
)  # fmt: skip
"""From pale to deep blue among the 256 colours terminals share, each with the colour of text it carries."""


def on_terminal() -> bool:
    """Whether a person is looking."""
    return sys.stdout.isatty()


def print_page(page: Page) -> None:
    """A page on standard output."""
    if not on_terminal():
        for line in _plain_lines(page.blocks):
            _write(line)
        return
    for block in page.blocks:
        _draw(block)


def plain_text(page: Page) -> str:
    """A page without colours and charts, as a pipe gets it."""
    return "\n".join(_plain_lines(page.blocks)).rstrip("\n")


def _write(line: str) -> None:
    """A line on standard output, whatever its encoding; click is loaded on every command line."""
    import click

    click.echo(line)


# ---------------------------------------------------------------- plain text


def _plain_lines(blocks: Sequence[Block]) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, Table):
            yield from _plain_table(block)
        else:
            yield from (_plain(text) for text, _ in _styled_lines(block))


def _styled_lines(block: Block) -> Iterator[tuple[str, str]]:
    """The lines of a block that is neither a table nor a chart, each with its style."""
    match block:
        case Heading(text, tone):
            yield text, f"bold {_STYLES[tone]}".strip()
        case Sentence(text, tone, indent):
            yield _INDENT * indent + text, _STYLES[tone]
        case Figures(entries):
            for each in entries:
                yield f"{_INDENT}{each.name}: {each.value}" + (f", {each.about}" if each.about else ""), ""
        case Notes(entries, indent):
            for entry in entries:
                yield f"{_INDENT * indent}Note: {entry}", _STYLES[Tone.WARNING]
        case Code(text):
            yield _INDENT + text, ""
        case Break():
            yield "", ""


def _plain(text: str) -> str:
    """Spaces that keep words together are for those who read; programs look for plain ones."""
    return text.replace("\u00a0", " ")


def _plain_table(table: Table) -> Iterator[str]:
    rows = _texts(table)
    widths = _widths(table.columns, rows)
    if table.title:
        yield table.title
    for line in ([column.title for column in table.columns], *rows):
        cells = (
            cell.rjust(width) if column.right else cell.ljust(width)
            for cell, width, column in zip(line, widths, table.columns, strict=True)
        )
        yield _plain((" " * _GAP).join(cells).rstrip())


def _texts(table: Table) -> list[tuple[str, ...]]:
    rows: list[Row] = [*table.rows, *([table.footer] if table.footer else [])]
    return [tuple(map(text_of, row)) for row in rows]


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    return [
        max(len(column.title), *(len(row[index]) for row in rows), 0) for index, column in enumerate(columns)
    ]


# ---------------------------------------------------------------- a terminal


def _draw(block: Block) -> None:
    if isinstance(block, Table):
        _draw_table(block)
    elif isinstance(block, Chart):
        _draw_chart(block)
    else:
        for text, style in _styled_lines(block):
            print_line(text, style)


def print_line(text: str = "", style: str = "") -> None:
    """A line on standard output; on a terminal styled, and wrapped between words with its indent kept."""
    if not (text and on_terminal()):
        _write(_plain(text))
        return
    from rich.console import Console

    indent = text[: len(text) - len(text.lstrip())]
    wrapped = textwrap.fill(
        text.strip(), _terminal_width(), initial_indent=indent, subsequent_indent=indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    Console(highlight=False, soft_wrap=True).print(wrapped, style=style or None, markup=False)


def _terminal_width() -> int:
    return shutil.get_terminal_size().columns


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


def _draw_table(table: Table) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    columns, texts = table.columns, _texts(table)
    kept = fitting(columns, texts, _terminal_width())
    drawn = RichTable(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0), pad_edge=False)
    for column in (columns[index] for index in kept):
        drawn.add_column(
            column.title,
            justify="right" if column.right else "left",
            style=_STYLES[column.tone] or None,
            no_wrap=not column.least,
            overflow="fold",
        )
    if table.shade:
        for row in _shaded_rows(table):
            drawn.add_row(*(row[index] for index in kept))
    else:
        for line in texts:
            drawn.add_row(*(Text(line[index]) for index in kept))
    if table.title:
        print_line(table.title, "bold")
    Console(highlight=False).print(drawn)
    hidden = [column.title for index, column in enumerate(columns) if index not in kept]
    if hidden:
        print_line(f"Columns hidden (terminal too narrow): {', '.join(hidden)}; use --json for all", "dim")


def _shaded_rows(table: Table) -> Iterator[list[Any]]:
    """The rows with colour behind their numbers, from the least value of all rows to the most."""
    from rich.text import Text

    values = [value for row in table.rows for cell in row if (value := value_of(cell)) is not None]
    widths = [max(map(len, column)) for column in zip(*_texts(table), strict=True)]
    for name, *cells in table.rows:
        shown = [Text(text_of(name))]
        for cell, width in zip(cells, widths[1:], strict=True):
            shown.append(Text(text_of(cell).rjust(width), style=_shade_style(cell, values)))
        yield shown


def _shade_style(cell: Cell | str, values: Sequence[float]) -> str:
    value = value_of(cell)
    if value is None:
        return "dim"
    background, foreground = _RAMP[shade(value, values)]
    is_marked = isinstance(cell, Cell) and cell.is_marked
    return f"{'bold underline ' if is_marked else ''}color({foreground}) on color({background})"


# ---------------------------------------------------------------- charts


def _draw_chart(chart: Chart) -> None:
    """Curves or points drawn with characters, on linear or logarithmic axes."""
    if not chart.series:
        return
    plotext = _canvas()
    drawn = [series for series in chart.series if len(series.x)]
    for index, series in enumerate(drawn):
        marker = "✓" if series.is_main else _MARKERS[index % len(_MARKERS)]
        if chart.is_log:
            marker = "✓" if series.is_main else "hd" if series.is_line else "dot"
        draw = plotext.plot if series.is_line else plotext.scatter
        x, y = (
            [math.log10(value) for value in values] if chart.is_log else list(values)
            for values in (series.x, series.y)
        )
        draw(x, y, label=series.label, marker=marker)
    _set_ticks(plotext.xticks, plotext.xlim, [series.x for series in drawn], chart)
    _set_ticks(plotext.yticks, plotext.ylim, [series.y for series in drawn], chart)
    plotext.title(chart.title)
    plotext.xlabel(chart.x_label)
    plotext.ylabel(chart.y_label)
    _write(plotext.build())


def _set_ticks(set_ticks: Any, set_limits: Any, columns: Sequence[Sequence[float]], chart: Chart) -> None:
    """Round numbers on an axis; from 0 on where the chart starts there."""
    if chart.is_log:
        ticks = log_ticks([value for column in columns for value in column])
        set_ticks([math.log10(tick) for tick in ticks], [f"{tick:,.10g}" for tick in ticks])
        return
    top = max(max(column) for column in columns)
    ticks = round_ticks(top)
    set_ticks(ticks, [f"{tick:,.10g}" for tick in ticks])
    if chart.from_zero and top > 0:
        set_limits(0, top)


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
