"""Rows by columns of numbers with colour behind them; a real table, so that it copies, scrolls and prints.

Colours run from pale to deep along one line of lightness (so also in grey and with any colour vision), by the
logarithm of the value where values differ much. Cells without a number say why, by a letter explained below.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from string import ascii_lowercase

from foretrain.serving.html.markup import Markup, element, join

SHADES = 9
"""Classes `h0` to `h8` of the style sheet, from pale to deep."""
_MANY = 10
"""A table of more columns than this is printed smaller."""
_MUCH = 10.0
"""Values that differ by more than this factor are coloured by their logarithm."""


@dataclass(frozen=True, slots=True)
class HeatCell:
    """A number as it is written, or the reason why there is none; what hovering tells; if it is the best."""

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
        element("tr", element("th", name, scope="row"), *(_cell(cell, values, letters) for cell in row))
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


def _cell(cell: HeatCell, values: Sequence[float], letters: dict[str, str]) -> Markup:
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
