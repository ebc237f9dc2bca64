"""What charts with axes share: a frame at two sizes, axes with ticks, and the figure around them.

A chart is drawn twice, wide and narrow, so that its text keeps its size on a phone; the style sheet shows the
one that fits. Colours are classes, so that light, dark and paper have their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from foretrain.serving.html.labels import Box, text_width
from foretrain.serving.html.markup import Markup, element, join
from foretrain.serving.html.scales import Axis, Scale, Tick, scale_over, ticks

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
