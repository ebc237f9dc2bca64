"""Time against money and the like: the front as a line through labelled points, others faint behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from foretrain.serving.html.drawing import (
    FONT_SIZE,
    Canvas,
    Frame,
    LegendEntry,
    drawn,
    figure,
    framed,
    line,
    path,
    text_at,
)
from foretrain.serving.html.labels import Box, Placed, Wanted, first_free, place_labels, placed_at
from foretrain.serving.html.markup import Markup, element, join
from foretrain.serving.html.scales import Axis

_CELL = 4.0
"""Faint points within so many pixels are drawn as one, so that thousands stay a small file."""
_WORTH_SHOWING = 12.0
"""Faint points more than so many times beyond everything else are counted, not drawn."""


class Standing(StrEnum):
    """What a point is, in the order it is drawn."""

    OTHER = "other"
    FRONT = "front"
    EXTRA = "extra"
    CHOSEN = "chosen"


_RADIUS = {Standing.OTHER: 2.5, Standing.FRONT: 5.0, Standing.EXTRA: 6.0, Standing.CHOSEN: 8.0}
_ORDER = {standing: place for place, standing in enumerate(Standing)}


@dataclass(frozen=True, slots=True)
class Dot:
    """A point; `labels` from the one wanted most to the shortest that will do, `tip` what hovering tells.

    `x_ends` and `y_ends` are an interval to draw through it.
    """

    x: float
    y: float
    standing: Standing
    tip: str
    labels: tuple[str, ...] = ()
    x_ends: tuple[float, float] | None = None
    y_ends: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Limit:
    """A line that is not to be crossed."""

    value: float
    text: str


@dataclass(frozen=True)
class Scatter:
    """The chart's info: points (those of the front in the order of its line), and limits on both axes.

    Points are labelled as far as there is room, the chosen one first.
    """

    title: str
    description: str
    x: Axis
    y: Axis
    dots: tuple[Dot, ...]
    x_limit: Limit | None = None
    y_limit: Limit | None = None
    legend: tuple[tuple[Standing, str], ...] = ()


def scatter(chart: Scatter) -> Markup:
    """The chart as a figure."""
    shown = _worth_drawing(chart)
    left_out = len(chart.dots) - len(shown)
    entries = [LegendEntry(text, f"dot {standing}") for standing, text in chart.legend]
    caption = f"Not drawn, far beyond the upper right: {left_out:,}." if left_out else ""
    return figure(chart.title, lambda canvas: _draw(chart, shown, canvas), entries, caption)


def _worth_drawing(chart: Scatter) -> tuple[Dot, ...]:
    """All that stand out, and the others that are not hopelessly far from them."""
    main = [dot for dot in chart.dots if dot.standing is not Standing.OTHER]
    if not main:
        return chart.dots
    x_most, y_most = (_WORTH_SHOWING * max(values) for values in _extent(chart, main))
    return tuple(
        dot
        for dot in chart.dots
        if dot.standing is not Standing.OTHER or (dot.x <= x_most and dot.y <= y_most)
    )


def _extent(chart: Scatter, dots: Sequence[Dot]) -> tuple[list[float], list[float]]:
    """All values the axes must hold."""
    xs = [value for dot in dots for value in (dot.x, *(dot.x_ends or ()))]
    ys = [value for dot in dots for value in (dot.y, *(dot.y_ends or ()))]
    xs += [] if chart.x_limit is None else [chart.x_limit.value]
    ys += [] if chart.y_limit is None else [chart.y_limit.value]
    return xs, ys


def _draw(chart: Scatter, shown: Sequence[Dot], canvas: Canvas) -> Markup:
    frame, axes = framed(canvas, chart.x, chart.y, *_extent(chart, shown))
    by_standing = {kind: [dot for dot in shown if dot.standing is kind] for kind in Standing}
    front = sorted(
        (dot for dot in shown if dot.standing in (Standing.FRONT, Standing.CHOSEN)), key=lambda dot: dot.x
    )
    limit_marks, limit_boxes = _limits(chart, frame)
    return drawn(
        canvas,
        chart.title,
        chart.description,
        axes,
        join(limit_marks),
        join(_faint(by_standing[Standing.OTHER], frame)),
        path([frame.point(dot.x, dot.y) for dot in front], "front-line") if len(front) > 1 else "",
        join(_mark(dot, frame) for kind in list(Standing)[1:] for dot in by_standing[kind]),
        join(_labels(shown, frame, limit_boxes)),
    )


def _faint(dots: Sequence[Dot], frame: Frame) -> Iterator[Markup]:
    """Points in one small square are one, which tells of the first and how many more."""
    cells: dict[tuple[int, int], list[Dot]] = {}
    for dot in dots:
        x, y = frame.point(dot.x, dot.y)
        cells.setdefault((round(x / _CELL), round(y / _CELL)), []).append(dot)
    for alike in cells.values():
        more = f" (and {len(alike) - 1} more here)" if len(alike) > 1 else ""
        yield _circle(alike[0], frame, alike[0].tip + more)


def _mark(dot: Dot, frame: Frame) -> Markup:
    x, y = frame.point(dot.x, dot.y)
    ends = []
    if dot.x_ends is not None:
        ends.append(line(frame.x.pixel(dot.x_ends[0]), y, frame.x.pixel(dot.x_ends[1]), y, "interval"))
    if dot.y_ends is not None:
        ends.append(line(x, frame.y.pixel(dot.y_ends[0]), x, frame.y.pixel(dot.y_ends[1]), "interval"))
    return join((*ends, _circle(dot, frame, dot.tip)))


def _circle(dot: Dot, frame: Frame, tip: str) -> Markup:
    x, y = frame.point(dot.x, dot.y)
    return element(
        "circle", element("title", tip), cx=x, cy=y, r=_RADIUS[dot.standing], class_=f"dot {dot.standing}"
    )


def _limits(chart: Scatter, frame: Frame) -> tuple[list[Markup], list[Box]]:
    """Both limits as lines with their names, and the room these take."""
    marks: list[Markup] = []
    boxes: list[Box] = []
    area = frame.area
    if chart.x_limit is not None:
        at = frame.x.pixel(chart.x_limit.value)
        sides = ((at + 6, "start"), (at - 6, "end"))
        places = [
            placed_at(chart.x_limit.text, FONT_SIZE, x, y, anchor)
            for y in (area.top + 6, area.bottom - 6)
            for x, anchor in sides
        ]
        marks.append(line(at, area.top - 6, at, area.bottom, "limit"))
        boxes.append(Box(at - 1, area.top - 6, at + 1, area.bottom))
        _name(places, frame, marks, boxes)
    if chart.y_limit is not None:
        at = frame.y.pixel(chart.y_limit.value)
        sides = ((area.right - 2, "end"), (area.left + 6, "start"))
        places = [
            placed_at(chart.y_limit.text, FONT_SIZE, x, y, anchor)
            for x, anchor in sides
            for y in (at - 6, at + 14)
        ]
        marks.append(line(area.left, at, area.right, at, "limit"))
        boxes.append(Box(area.left, at - 1, area.right, at + 1))
        _name(places, frame, marks, boxes)
    return marks, boxes


def _name(places: Sequence[Placed], frame: Frame, marks: list[Markup], boxes: list[Box]) -> None:
    place = first_free(places, _labelled(frame), boxes)
    if place is not None:
        marks.append(_text(place, "limit-label"))
        boxes.append(place.box)


def _labels(shown: Sequence[Dot], frame: Frame, taken: Sequence[Box]) -> Iterator[Markup]:
    """Texts of the points that have some: the most important points first, and names before numbers."""
    named = [dot for dot in shown if dot.labels]
    named.sort(key=lambda dot: (-_ORDER[dot.standing], -len(dot.labels[0])))
    wanted = [
        Wanted(*frame.point(dot.x, dot.y), _RADIUS[dot.standing], dot.labels, dot.standing is Standing.CHOSEN)
        for dot in named
    ]
    placed = place_labels(wanted, FONT_SIZE, _labelled(frame), taken)
    for dot, place in zip(named, placed, strict=True):
        if place is not None:
            yield _text(place, f"label {dot.standing}")


def _text(place: Placed, class_: str) -> Markup:
    return text_at(place.x, place.y, place.text, class_, place.anchor)


def _labelled(frame: Frame) -> Box:
    """Where texts may stand: inside the axes, and a little beyond at the top and the right."""
    area = frame.area
    return Box(area.left + 2, area.top - 8, frame.canvas.width, area.bottom - 2)
