"""Blocks that a page is made of: what an answer shows, without how it is drawn.

A view turns an answer into a `Page`; a renderer (`serving/rendering`) turns a page into text or HTML. Blocks
hold texts that are ready to read and the numbers behind them, for sorting and shading; no colours, no tags.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Tone(StrEnum):
    """What a text is among the others; renderers choose the colours."""

    PLAIN = ""
    NAME = "name"
    KEY = "key"
    """The figure that was asked for."""
    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"
    LIMIT = "limit"
    """What sets the pace."""
    MINOR = "minor"


@dataclass(frozen=True, slots=True)
class Heading:
    """The answer in a line (level 1), or the title of a part of the page (level 2)."""

    text: str
    tone: Tone = Tone.PLAIN
    level: int = 1


@dataclass(frozen=True, slots=True)
class Sentence:
    """A line or a paragraph; `indent` puts it below the one before."""

    text: str
    tone: Tone = Tone.PLAIN
    indent: int = 0


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that matters: what it is, the number, and a few words about it."""

    name: str
    value: str
    about: str = ""


@dataclass(frozen=True, slots=True)
class Figures:
    """Names with a figure or a text for each; `is_key` for the few that answer the question."""

    entries: Sequence[Figure]
    is_key: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """A table column; numbers go to the right.

    Where there is little room a column may shrink to its `least` width by wrapping (0 = never), and columns
    with the highest `expendable` go first (0 = never). `role` says what it is for: `title` what a row is
    about, `key` the figures that decide, `name` names of machines, which may be broken after `_` and `:`,
    `keep` texts that are not to be broken. Several are separated by spaces.
    """

    title: str
    right: bool = False
    tone: Tone = Tone.PLAIN
    least: int = 0
    expendable: int = 0
    role: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """A text, and the number behind it; `minor` is a second, smaller line, `tip` the whole in a sentence.

    A cell without a value in a shaded table has the reason as its tip. `link` is the address of a source.
    """

    text: str
    value: float | None = None
    minor: str = ""
    tip: str = ""
    is_marked: bool = False
    link: str = ""


Row = Sequence[Cell | str]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under columns. `marked` and `faded` are rows by number; `footer` is the row of totals.

    `shade` names the unit of the values whose size is shown by colour, over all rows but the first column.
    """

    columns: Sequence[Column]
    rows: Sequence[Row]
    title: str = ""
    footer: Row | None = None
    marked: frozenset[int] = frozenset()
    faded: frozenset[int] = frozenset()
    is_sortable: bool = False
    shade: str = ""
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """Points of a chart, joined by a line or not."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    is_line: bool = True
    is_main: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart: its series for a rough drawing, and `spec`, which makes its Vega-Lite specification.

    `spec` is given the pixels between the vertical axes. `description` says what a reader who sees no picture
    should know.
    """

    title: str
    description: str = ""
    x_label: str = ""
    y_label: str = ""
    series: Sequence[Series] = ()
    is_log: bool = False
    from_zero: bool = False
    spec: Callable[[int], Mapping[str, Any]] | None = field(default=None, compare=False)
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Notes:
    """Remarks on the answer."""

    entries: Sequence[str]
    indent: int = 0


@dataclass(frozen=True, slots=True)
class Code:
    """What is typed."""

    text: str


@dataclass(frozen=True, slots=True)
class Break:
    """Some space between two parts."""


Block = Heading | Sentence | Figures | Table | Chart | Notes | Code | Break


@dataclass(frozen=True, slots=True)
class Page:
    """An answer as it is shown; `title` names it where pages are listed."""

    title: str
    blocks: tuple[Block, ...]

    @classmethod
    def of(cls, title: str, blocks: Iterable[Block]) -> Page:
        """A page of the blocks that a view yields."""
        return cls(title, tuple(blocks))


def text_of(cell: Cell | str) -> str:
    """The text of a cell."""
    return cell if isinstance(cell, str) else cell.text


def value_of(cell: Cell | str) -> float | None:
    """The number behind a cell."""
    return None if isinstance(cell, str) else cell.value


SHADES = 9
"""Steps of colour, from pale to deep."""
_MUCH = 10.0
"""Values that differ by more than this factor are coloured by their logarithm."""


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
