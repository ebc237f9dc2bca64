"""Tables: numbers to the right, short ones whole on one page, long ones with their head on every page.

A heat map is a table with colour behind its numbers, so that it copies, scrolls and prints. Colours run from
pale to deep along one line of lightness (so also in grey and with any colour vision), by the logarithm of the
value where values differ much. Cells without a number give the reason by a letter explained below.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from string import ascii_lowercase

from foretrain.serving.html.page import Markup, element, join, ranged

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
    """The text of a cell, the sort key where that is not the text, and the tooltip."""

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


SHADES = 9
"""Classes `h0` to `h8` of the style sheet, from pale to deep."""
_MANY = 10
"""A table of more columns than this is printed smaller."""
_MUCH = 10.0
"""Values that differ by more than this factor are coloured by their logarithm."""


@dataclass(frozen=True, slots=True)
class HeatCell:
    """A number and its text, or the reason why there is none; the tooltip; whether it is the best."""

    value: float | None
    text: str = ""
    reason: str = ""
    tip: str = ""
    is_marked: bool = False


@dataclass(frozen=True)
class HeatMap:
    """The chart's info: `corner` says what the rows are, `across` the columns, `unit` the numbers."""

    title: str
    corner: str
    across: str
    unit: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[HeatCell, ...]], ...]
    caption: str = ""

    def cells(self) -> Iterator[HeatCell]:
        """All of them."""
        return (cell for _, row in self.rows for cell in row)


def heat_map(chart: HeatMap) -> Markup:
    """The table with its scale and the reasons for what is missing."""
    letters = _letters(chart)
    values = [cell.value for cell in chart.cells() if cell.value is not None]
    width = len(chart.columns)
    head = element(
        "thead",
        element(
            "tr",
            element("th", chart.corner, scope="col", rowspan="2", class_="corner"),
            element("th", chart.across, scope="colgroup", colspan=str(width), class_="across"),
        ),
        element("tr", *(element("th", name, scope="col") for name in chart.columns)),
    )
    body = [
        element("tr", element("th", name, scope="row"), *(_heat_cell(cell, values, letters) for cell in row))
        for name, row in chart.rows
    ]
    return element(
        "figure",
        element("figcaption", chart.title),
        _legend(chart, values),
        element(
            "div",
            element("table", head, element("tbody", *body), class_="heat many" if width > _MANY else "heat"),
            class_="scroll", tabindex="0", role="region", aria_label=chart.title,
        ),
        _reasons(letters),
        element("p", chart.caption, class_="caption") if chart.caption else "",
        class_="figure",
    )  # fmt: skip


def shade(value: float, values: Sequence[float]) -> int:
    """Which of the shades a value gets among all values: 0 for the least, the last for the most."""
    low, high = min(values), max(values)
    if high <= low:
        return 0
    if low > 0 and high / low > _MUCH:
        share = math.log(value / low) / math.log(high / low)
    else:
        share = (value - low) / (high - low)
    return min(SHADES - 1, int(share * SHADES))


def _heat_cell(cell: HeatCell, values: Sequence[float], letters: dict[str, str]) -> Markup:
    if cell.value is None:
        letter = letters.get(cell.reason, "")
        return element(
            "td", "–", element("sup", letter) if letter else "", class_="empty", title=cell.reason or None
        )
    mark = " best" if cell.is_marked else ""
    return element("td", cell.text, class_=f"h{shade(cell.value, values)}{mark}", title=cell.tip or None)


def _letters(chart: HeatMap) -> dict[str, str]:
    """A letter for each reason, in the order they first occur; after z come aa, ab ..."""
    reasons = dict.fromkeys(cell.reason for cell in chart.cells() if cell.value is None and cell.reason)
    return {reason: _letter(number) for number, reason in enumerate(reasons)}


def _letter(number: int) -> str:
    before, last = divmod(number, len(ascii_lowercase))
    return (_letter(before - 1) if before else "") + ascii_lowercase[last]


def _reasons(letters: dict[str, str]) -> Markup:
    if not letters:
        return Markup("")
    entries = [element("li", element("sup", letter), " ", reason) for reason, letter in letters.items()]
    return element("ul", *entries, class_="reasons")


def _legend(chart: HeatMap, values: Sequence[float]) -> Markup:
    """The shades between the least and the most, as these are written in their cells."""
    if not values:
        return Markup("")
    numbers = [cell for cell in chart.cells() if cell.value is not None]
    least, most = (pick(numbers, key=lambda cell: cell.value or 0.0) for pick in (min, max))
    shades = join(element("span", class_=f"shade h{number}") for number in range(SHADES))
    return element(
        "p", f"{chart.unit}: {least.text} ", element("span", shades, class_="shades", aria_hidden="true"),
        f" {most.text}", class_="scale",
    )  # fmt: skip
