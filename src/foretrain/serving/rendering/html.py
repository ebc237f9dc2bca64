"""Pages as HTML: a self-contained document for a report, a fragment for a notebook.

The template escapes every text. A document is one file without any outside request, in light and dark, on a
phone and on paper.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from string import ascii_lowercase
from typing import TYPE_CHECKING

from foretrain.errors import MissingData
from foretrain.serving.rendering.charts import page_svgs
from foretrain.serving.views.blocks import (
    SHADES,
    Block,
    Break,
    Cell,
    Chart,
    Column,
    Heading,
    Page,
    Row,
    Table,
    shade,
    text_of,
    value_of,
)

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

_SHORT = 24
"""Rows that are kept together on a printed page."""
_MANY = 10
"""A table of more columns than this is printed smaller."""
_DENSE = 8
"""A table of more columns than this has smaller text."""


def document(page: Page, kicker: str = "", command: str = "", made_on: str = "") -> str:
    """A page as one file; `command` and `made_on` state its origin and date."""
    sections = _sections(page.blocks)
    return _template().render(
        is_document=True,
        page=page,
        kicker=" · ".join(part for part in (kicker, made_on) if part),
        opening=sections[0],
        sections=sections[1:],
        command=command,
        made_on=made_on,
        style=_asset("page.css"),
        script=_asset("sort_tables.js"),
    )


def fragment(page: Page) -> str:
    """A page as a piece of HTML that brings its own few styles."""
    return _template().render(is_document=False, page=page, sections=_sections(page.blocks))


@dataclass
class _Section:
    """Blocks under a heading of the second level; the first section has none."""

    heading: Heading | None = None
    blocks: list[Block] = field(default_factory=list)


def _sections(blocks: Sequence[Block]) -> list[_Section]:
    sections = [_Section()]
    for block in blocks:
        if isinstance(block, Heading) and block.level > 1:
            sections.append(_Section(block))
        elif not isinstance(block, Break):
            sections[-1].blocks.append(block)
    return sections


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    environment.filters.update(
        prose=_prose, name=_breakable, kind=lambda block: type(block).__name__, text=text_of,
        cells=_cells, heat=_heat, table_class=_table_class, figure=chart_figure, sort_key=_sort_key,
        minor=lambda cell: cell.minor if isinstance(cell, Cell) else "",
        tip=lambda cell: cell.tip if isinstance(cell, Cell) else "",
        address=lambda cell: cell.link if isinstance(cell, Cell) else "",
    )  # fmt: skip
    environment.globals.update(shades=range(SHADES))
    return environment.from_string(_asset("page.html.jinja"))


@cache
def _asset(name: str) -> Markup:
    from markupsafe import Markup

    return Markup(files("foretrain.serving.rendering").joinpath(name).read_text(encoding="utf-8"))


def _prose(text: str) -> Markup:
    """A text with its `code` in a font of its own, and no line that ends inside an option."""
    from markupsafe import Markup, escape

    pieces = re.split(r"`([^`]+)`|((?<!\S)-[-\w]+)", text)  # text, code or None, option or None, text ...
    tags = (Markup("{}"), Markup("<code>{}</code>"), Markup('<span class="keep">{}</span>'))
    return Markup("").join(
        tags[place % 3].format(escape(piece)) for place, piece in enumerate(pieces) if piece is not None
    )


def _breakable(text: str) -> Markup:
    """A name of a machine with places to break it, after `_` and `:`."""
    from markupsafe import Markup, escape

    return Markup("<wbr>").join(map(escape, re.split(r"(?<=[_:])(?=.)", text)))


def _cells(row: Row, columns: Sequence[Column]) -> list[tuple[Cell | str, Column, str]]:
    """Cells with their columns and classes."""
    return [
        (cell, column, " ".join(filter(None, ("number" if column.right else "", column.role, column.tone))))
        for cell, column in zip(row, columns, strict=True)
    ]


def _sort_key(cell: Cell | str) -> str:
    value = value_of(cell)
    return "" if value is None else repr(float(value))


def _table_class(table: Table) -> str:
    width = len(table.columns)
    names = {
        "heat": bool(table.shade),
        "many": bool(table.shade) and width > _MANY,
        "short": len(table.rows) <= _SHORT,
        "sortable": table.is_sortable,
    }
    return " ".join(name for name, is_so in names.items() if is_so)


@dataclass(frozen=True)
class _Heat:
    """The shade of each cell, the least and the most as they are written, and a letter for each reason.

    Reasons are those of cells without a value, in the order they first occur.
    """

    classes: tuple[tuple[str, ...], ...]
    least: str
    most: str
    letters: Mapping[str, str]


def _heat(table: Table) -> _Heat:
    numbers = [cell for row in table.rows for cell in row[1:] if value_of(cell) is not None]
    values = [value for cell in numbers if (value := value_of(cell)) is not None]

    def class_of(cell: Cell | str) -> str:
        value = value_of(cell)
        if value is None:
            return "empty"
        is_best = isinstance(cell, Cell) and cell.is_marked
        return f"h{shade(value, values)}{' best' if is_best else ''}"

    ends = sorted(numbers, key=lambda cell: value_of(cell) or 0.0)
    blank = [cell for row in table.rows for cell in row[1:] if value_of(cell) is None]
    reasons = dict.fromkeys(cell.tip for cell in blank if isinstance(cell, Cell) and cell.tip)
    return _Heat(
        tuple(tuple(class_of(cell) for cell in row[1:]) for row in table.rows),
        text_of(ends[0]) if ends else "",
        text_of(ends[-1]) if ends else "",
        {reason: _letter(number) for number, reason in enumerate(reasons)},
    )


def _letter(number: int) -> str:
    """a to z, then aa, ab ..."""
    before, last = divmod(number, len(ascii_lowercase))
    return (_letter(before - 1) if before else "") + ascii_lowercase[last]


def chart_figure(chart: Chart) -> Markup:
    """The chart as a figure; its description and the reason where it cannot be drawn here."""
    from markupsafe import Markup

    try:
        picture = Markup(page_svgs(chart))
    except MissingData as error:
        picture = Markup('<p class="caption">{} Not drawn: {}.</p>').format(chart.description, error)
    if not picture:
        return Markup("")
    caption = Markup('<p class="caption">{}</p>').format(_prose(chart.caption)) if chart.caption else ""
    return Markup('<figure class="figure"><figcaption>{}</figcaption>{}{}</figure>').format(
        chart.title, picture, caption
    )
