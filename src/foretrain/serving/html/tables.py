"""Tables: numbers to the right, short ones whole on one page, long ones with their head on every page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from foretrain.serving.html.markup import Markup, element, join, ranged

_SHORT = 24
"""Rows that are kept together on a printed page."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its head, whether it holds numbers, and classes of its own.

    A column of class `name` holds names of machines, which may be broken after `_` and `:`.
    """

    head: str
    right: bool = False
    class_: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """What stands in a cell, what to sort it by where that is not its text, and what hovering tells."""

    text: str
    sort_by: float | None = None
    tip: str = ""
    minor: str = ""
    """A second line, smaller."""


Row = Sequence[Cell | str]


def table(
    columns: Sequence[Column],
    rows: Sequence[Row],
    *,
    footer: Row | None = None,
    marked: frozenset[int] = frozenset(),
    faded: frozenset[int] = frozenset(),
    sortable: bool = False,
    label: str = "",
    class_: str = "",
) -> Markup:
    """A table that scrolls by itself where it is too wide; `marked` and `faded` are rows by number.

    `class_` may be `dense` for many columns, `slim` for few, `cards` to have each row become a card on a
    phone: columns of class `title` first, then those of class `key`.
    """
    head = element(
        "tr", *(element("th", column.head, scope="col", class_=_class(column)) for column in columns)
    )
    body = [
        element("tr", *_cells(columns, row), class_=_row_class(number, marked, faded))
        for number, row in enumerate(rows)
    ]
    classes = " ".join(
        name for name, is_so in (("short", len(rows) <= _SHORT), ("sortable", sortable)) if is_so
    )
    made = element(
        "table",
        element("thead", head),
        element("tbody", *body),
        "" if footer is None else element("tfoot", element("tr", *_cells(columns, footer))),
        class_=classes or None,
    )
    return element(
        "div", made, class_=f"scroll {class_}".strip(), tabindex="0" if label else None,
        role="region" if label else None, aria_label=label or None,
    )  # fmt: skip


def _cells(columns: Sequence[Column], row: Row) -> list[Markup]:
    made = []
    for column, cell in zip(columns, row, strict=True):
        cell = cell if isinstance(cell, Cell) else Cell(cell)
        made.append(
            element(
                "td",
                _name(cell.text) if "name" in column.class_.split() else cell.text,
                element("small", ranged(cell.minor) if column.right else cell.minor) if cell.minor else "",
                class_=_class(column),
                data_head=column.head or None,
                data_sort=None if cell.sort_by is None else repr(float(cell.sort_by)),
                title=cell.tip or None,
            )
        )
    return made


def _name(text: str) -> Markup:
    """A name with places to break it."""
    first, *others = re.split(r"(?<=[_:])(?=.)", text)
    return join((first, *(piece for part in others for piece in (element("wbr"), part))))


def _class(column: Column) -> str | None:
    return " ".join(name for name in ("number" if column.right else "", column.class_) if name) or None


def _row_class(number: int, marked: frozenset[int], faded: frozenset[int]) -> str | None:
    if number in marked:
        return "marked"
    return "faded" if number in faded else None
