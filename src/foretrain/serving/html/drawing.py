"""What charts with axes share: a frame at two sizes, axes with ticks, labels, and the figure around them.

A chart is drawn twice, wide and narrow, so that its text keeps its size on a phone; the style sheet shows the
one that fits. Colours are classes, so that light, dark and paper have their own. Labels stand next to what
they name, over nothing else, or not at all; the reader's font is unknown, so the width of a text is bounded
by that in the widest of the common fonts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from foretrain.serving.html.page import Markup, element, join
from foretrain.serving.html.scales import Axis, Scale, Tick, scale_over, ticks

_NARROW_WIDTH, _MEDIUM_WIDTH, _CAPITAL_WIDTH, _WIDE_WIDTH = 0.42, 0.64, 0.84, 1.0
"""Advance widths as shares of the font's size, which no character of its kind exceeds in DejaVu Sans."""
_NARROW_CHARACTERS = frozenset(" .,:;·'|!()[]/-Iijlftr")
_WIDE_CHARACTERS = frozenset("MWmw%@")
_BOLD = 1.12
"""Width of a bold text relative to a regular one."""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle of pixels."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Box) -> bool:
        """Whether the two share more than an edge."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )

    def inside(self, other: Box) -> bool:
        """Whether all of it lies in the other."""
        return (
            other.left <= self.left
            and self.right <= other.right
            and other.top <= self.top
            and self.bottom <= other.bottom
        )


@dataclass(frozen=True, slots=True)
class Wanted:
    """A point to be labelled: where, how large its marker is, and what to write, the best text first."""

    x: float
    y: float
    radius: float
    texts: tuple[str, ...]
    is_bold: bool = False


@dataclass(frozen=True, slots=True)
class Placed:
    """A text at a place: its anchor (start, middle or end) at the baseline, and the room it takes."""

    text: str
    anchor: str
    x: float
    y: float
    box: Box


def text_width(text: str, size: float, *, is_bold: bool = False) -> float:
    """Pixels a text takes in the widest of the common fonts."""
    regular = size * sum(_character_width(character) for character in text)
    return _BOLD * regular if is_bold else regular


def _character_width(character: str) -> float:
    if character in _NARROW_CHARACTERS or character.isspace():
        return _NARROW_WIDTH
    if character in _WIDE_CHARACTERS:
        return _WIDE_WIDTH
    return _CAPITAL_WIDTH if character.isupper() or character in "×+=<>~" else _MEDIUM_WIDTH


def placed_at(text: str, size: float, x: float, y: float, anchor: str, *, is_bold: bool = False) -> Placed:
    """A text with its anchor at a point."""
    width = text_width(text, size, is_bold=is_bold)
    left = x - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
    return Placed(text, anchor, x, y, Box(left, y - 0.85 * size, left + width, y + 0.3 * size))


def first_free(places: Iterable[Placed], within: Box, taken: Sequence[Box]) -> Placed | None:
    """The first place inside a box that touches nothing taken."""
    return next(
        (
            place
            for place in places
            if place.box.inside(within) and not any(place.box.overlaps(box) for box in taken)
        ),
        None,
    )


def place_labels(
    wanted: Sequence[Wanted], size: float, within: Box, taken: Iterable[Box] = (), *, above: bool = False
) -> list[Placed | None]:
    """A label for each point, in order of importance; None where no text has room.

    Places below left of a point are tried first, where nothing can be that is better than a point of a front;
    `above` tries those above it first, where a rising line leaves room.
    """
    occupied = [*taken, *(_marker(point) for point in wanted)]
    labels: list[Placed | None] = []
    for point in wanted:
        places = (place for text in point.texts for place in _places(point, text, size, above))
        placed = first_free(places, within, occupied)
        if placed is not None:
            occupied.append(placed.box)
        labels.append(placed)
    return labels


def _marker(point: Wanted) -> Box:
    return Box(point.x - point.radius, point.y - point.radius, point.x + point.radius, point.y + point.radius)


def _places(point: Wanted, text: str, size: float, above: bool) -> Iterator[Placed]:
    gap = point.radius + 3
    places = (
        ("end", -gap, gap + 0.5 * size),
        ("middle", 0.0, gap + size),
        ("end", -gap, 0.35 * size),
        ("start", gap, -gap),
        ("start", gap, 0.35 * size),
        ("start", gap, gap + 0.7 * size),
        ("middle", 0.0, -gap - 0.3 * size),
        ("end", -gap, -gap),
        ("start", 0.0, -gap - 1.2 * size),
    )
    for anchor, across, down in sorted(places, key=lambda place: above and place[2] > 0):
        yield placed_at(text, size, point.x + across, point.y + down, anchor, is_bold=point.is_bold)


FONT_SIZE = 12.0


@dataclass(frozen=True, slots=True)
class Canvas:
    """The size of a drawing in pixels, and how many ticks it has room for."""

    name: str
    width: float
    height: float
    x_ticks: int
    y_ticks: int


WIDE = Canvas("wide", 880, 420, 9, 7)
NARROW = Canvas("narrow", 360, 340, 5, 6)


@dataclass(frozen=True, slots=True)
class Frame:
    """The part of a drawing inside its axes, and the scales along them."""

    canvas: Canvas
    area: Box
    x: Scale
    y: Scale

    def point(self, x: float, y: float) -> tuple[float, float]:
        """Where two values meet."""
        return self.x.pixel(x), self.y.pixel(y)


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """A name and the class of the mark it stands for (`dot other`, `line c1` ...)."""

    text: str
    mark: str


def framed(
    canvas: Canvas, x: Axis, y: Axis, xs: Sequence[float], ys: Sequence[float]
) -> tuple[Frame, Markup]:
    """The frame that holds all values, and its axes drawn."""
    top, bottom = 26.0, canvas.height - 46.0
    y_scale = scale_over(ys, y, bottom, top)
    y_marks = ticks(y_scale, y.quantity, canvas.y_ticks)
    left = 12 + max((text_width(tick.text, FONT_SIZE) for tick in y_marks), default=0)
    area = Box(left, top, canvas.width - 14, bottom)
    x_scale = scale_over(xs, x, area.left, area.right)
    frame = Frame(canvas, area, x_scale, y_scale)
    x_marks = _apart(ticks(x_scale, x.quantity, canvas.x_ticks), x_scale)
    return frame, join(_axes(frame, x, y, x_marks, y_marks))


def drawn(canvas: Canvas, title: str, description: str, *content: str) -> Markup:
    """The SVG of one size."""
    return element(
        "svg",
        element("title", title),
        element("desc", description),
        *content,
        class_=f"chart {canvas.name}",
        viewBox=f"0 0 {canvas.width:g} {canvas.height:g}",
        role="img",
    )


def figure(
    title: str,
    draw: Callable[[Canvas], Markup],
    legend: Sequence[LegendEntry] = (),
    caption: str = "",
) -> Markup:
    """A chart at both sizes under its title, with a legend and a caption."""
    entries = [
        element("li", element("span", class_=f"mark {entry.mark}"), entry.text, class_="entry")
        for entry in legend
    ]
    return element(
        "figure",
        element("figcaption", title),
        element("ul", *entries, class_="legend") if entries else "",
        draw(WIDE),
        draw(NARROW),
        element("p", caption, class_="caption") if caption else "",
        class_="figure",
    )


def text_at(x: float, y: float, text: str, class_: str = "", anchor: str = "start") -> Markup:
    """A line of text with its baseline at a point."""
    return element(
        "text", text, x=float(x), y=float(y), class_=class_ or None,
        text_anchor=None if anchor == "start" else anchor,
    )  # fmt: skip


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """A straight line."""
    return element("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), class_=class_)


def path(points: Sequence[tuple[float, float]], class_: str) -> Markup:
    """A line through points."""
    return element("path", d="M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points), class_=class_)


def _axes(frame: Frame, x: Axis, y: Axis, x_marks: Sequence[Tick], y_marks: Sequence[Tick]) -> list[Markup]:
    area, middle = frame.area, 0.35 * FONT_SIZE
    drawn_ticks: list[Markup] = []
    for tick in y_marks:
        at = frame.y.pixel(tick.value)
        drawn_ticks.append(line(area.left, at, area.right, at, "grid"))
        drawn_ticks.append(text_at(area.left - 8, at + middle, tick.text, "tick", "end"))
    for tick in x_marks:
        at = frame.x.pixel(tick.value)
        drawn_ticks.append(line(at, area.top, at, area.bottom, "grid"))
        drawn_ticks.append(text_at(at, area.bottom + 18, tick.text, "tick", "middle"))
    return [
        *drawn_ticks,
        line(area.left, area.bottom, area.right, area.bottom, "axis"),
        text_at(0, 12, y.label, "axis-label"),
        text_at(area.right, frame.canvas.height - 6, x.label, "axis-label", "end"),
    ]


def _apart(marks: Sequence[Tick], scale: Scale) -> list[Tick]:
    """The ticks whose texts do not touch the one kept before, nor leave the drawing to the right."""
    kept: list[Tick] = []
    free_from = float("-inf")
    for tick in marks:
        half = text_width(tick.text, FONT_SIZE) / 2
        at = scale.pixel(tick.value)
        if at - half >= free_from and at + half <= scale.end + 14:
            kept.append(tick)
            free_from = at + half + 8
    return kept
