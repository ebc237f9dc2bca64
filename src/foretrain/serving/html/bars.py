"""A whole and its parts: a stacked bar without text, and a table that names every part beside its colour."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from foretrain.serving.html.page import Markup, element, join
from foretrain.serving.html.tables import Cell, Column, table
from foretrain.serving.views.wording import percent

COLOURS = 8
"""Classes `c1` to `c8` of the style sheet, distinguishable with any colour vision; the last is grey."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a whole, how it is written, and what it rests on."""

    name: str
    value: float
    text: str
    note: str = ""


@dataclass(frozen=True)
class Stack:
    """The chart's info. `capacity` is what the parts must fit into; without it they fill the bar.

    `ends` is the interval of the sum, a thin line; `capacity_text` and `total_text` how both are written.
    """

    title: str
    subtitle: str
    description: str
    slices: tuple[Slice, ...]
    total_text: str
    part_header: str
    value_header: str
    note_header: str = ""
    capacity: float | None = None
    capacity_text: str = ""
    ends: tuple[float, float] | None = None

    @property
    def total(self) -> float:
        """Sum of the parts."""
        return sum(part.value for part in self.slices)


def stacked_bar(stack: Stack, write: Callable[[float], str]) -> Markup:
    """The bar over its table; `write` writes the sum of the parts that are too many to be shown alone."""
    slices = _grouped(stack, write)
    return element(
        "figure",
        element("figcaption", stack.title, element("small", stack.subtitle) if stack.subtitle else ""),
        _bar(stack, slices),
        _table(stack, slices),
        class_="figure bar" if stack.note_header else "figure bar slim",
    )


def _grouped(stack: Stack, write: Callable[[float], str]) -> list[Slice]:
    """As many parts as there are colours; of more, the largest, and the others together as the last."""
    listed = [part for part in stack.slices if part.value > 0]
    if len(listed) <= COLOURS:
        return listed
    by_size = sorted(range(len(listed)), key=lambda place: -listed[place].value)
    kept = set(by_size[: COLOURS - 1])
    rest = [part for place, part in enumerate(listed) if place not in kept]
    value = sum(part.value for part in rest)
    names = ", ".join(part.name for part in rest)
    others = Slice(f"{len(rest)} others", value, write(value), names)
    return [*(part for place, part in enumerate(listed) if place in kept), others]


def _bar(stack: Stack, slices: Sequence[Slice]) -> Markup:
    whole = max(stack.total, stack.capacity or 0.0, *(stack.ends or ()), 0.0) or 1.0
    return element(
        "svg",
        element("title", stack.title),
        element("desc", stack.description),
        element("rect", x="0", y="6", width="100%", height="28", class_="free"),
        join(_rectangles(stack, slices, whole)),
        join(_marks(stack, whole)),
        class_="stack",
        role="img",
        width="100%",
        height="40",
    )


def _rectangles(stack: Stack, slices: Sequence[Slice], whole: float) -> Iterator[Markup]:
    start = 0.0
    for number, part in enumerate(slices, start=1):
        tip = f"{part.name}: {part.text}, {percent(part.value / stack.total, 1)}"
        yield element(
            "rect",
            element("title", tip),
            x=_percent(start, whole),
            y="6",
            width=_percent(part.value, whole),
            height="28",
            class_=f"part c{number}",
        )
        start += part.value


def _marks(stack: Stack, whole: float) -> Iterator[Markup]:
    """The interval of the sum, and the end of what there is room for."""
    if stack.ends is not None:
        low, high = (_percent(end, whole) for end in stack.ends)
        yield element("line", x1=low, y1="20", x2=high, y2="20", class_="halo")
        yield element("line", x1=low, y1="20", x2=high, y2="20", class_="whisker")
        for end in (low, high):
            yield element("line", x1=end, y1="14", x2=end, y2="26", class_="whisker")
    if stack.capacity is not None and stack.capacity < whole:
        at = _percent(stack.capacity, whole)
        yield element("line", x1=at, y1="0", x2=at, y2="40", class_="limit")


def _table(stack: Stack, slices: Sequence[Slice]) -> Markup:
    columns = [
        Column(stack.part_header, class_="keep"),
        Column(stack.value_header, right=True),
        Column("share", right=True),
    ]
    has_notes = bool(stack.note_header)
    if has_notes:
        columns.append(Column(stack.note_header, class_="source"))
    rows = [
        (
            Cell(join((element("span", class_=f"mark box c{number}"), part.name))),
            Cell(part.text, sort_by=part.value),
            Cell(percent(part.value / stack.total, 1), sort_by=part.value),
            *((Cell(part.note),) if has_notes else ()),
        )
        for number, part in enumerate(slices, start=1)
    ]
    blank = (Cell(""),) if has_notes else ()
    share = Cell(
        percent(stack.total / (stack.capacity or stack.total or 1.0)),
        minor=f"of {stack.capacity_text}" if stack.capacity_text else "",
    )
    total = (Cell("total"), Cell(stack.total_text), share, *blank)
    return table(columns, rows, footer=total)


def _percent(value: float, whole: float) -> str:
    return f"{100 * value / whole:.3f}%"
