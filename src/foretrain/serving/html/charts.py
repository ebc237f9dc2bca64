"""Charts with two axes: points with a front and limits (time against money), and lines over a number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from foretrain.serving.html.drawing import (
    FONT_SIZE,
    Box,
    Canvas,
    Frame,
    LegendEntry,
    Placed,
    Wanted,
    drawn,
    figure,
    first_free,
    framed,
    line,
    path,
    place_labels,
    placed_at,
    text_at,
)
from foretrain.serving.html.page import Markup, element, join
from foretrain.serving.html.scales import Axis

_CELL = 4.0
"""Size in pixels of the square whose faint points are drawn as one, which keeps the file small."""
_WORTH_SHOWING = 12.0
"""Faint points beyond everything else by more than this factor are counted, not drawn."""


class Standing(StrEnum):
    """What a point is, in the order it is drawn."""

    OTHER = "other"
    FRONT = "front"
    EXTRA = "extra"
    CHOSEN = "chosen"


_DOT_RADIUS = {Standing.OTHER: 2.5, Standing.FRONT: 5.0, Standing.EXTRA: 6.0, Standing.CHOSEN: 8.0}
_ORDER = {standing: place for place, standing in enumerate(Standing)}


@dataclass(frozen=True, slots=True)
class Dot:
    """A point; `labels` in order of preference, the shortest last; `tip` is the tooltip.

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
    return figure(chart.title, lambda canvas: _draw_scatter(chart, shown, canvas), entries, caption)


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


def _draw_scatter(chart: Scatter, shown: Sequence[Dot], canvas: Canvas) -> Markup:
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
        join(_dot_labels(shown, frame, limit_boxes)),
    )


def _faint(dots: Sequence[Dot], frame: Frame) -> Iterator[Markup]:
    """Draw the points of one small square as one, with the tooltip of the first and the number of others."""
    cells: dict[tuple[int, int], list[Dot]] = {}
    for dot in dots:
        x, y = frame.point(dot.x, dot.y)
        cells.setdefault((round(x / _CELL), round(y / _CELL)), []).append(dot)
    for group in cells.values():
        more = f" (and {len(group) - 1} more here)" if len(group) > 1 else ""
        yield _circle(group[0], frame, group[0].tip + more)


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
        "circle", element("title", tip), cx=x, cy=y, r=_DOT_RADIUS[dot.standing], class_=f"dot {dot.standing}"
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


def _dot_labels(shown: Sequence[Dot], frame: Frame, taken: Sequence[Box]) -> Iterator[Markup]:
    """Texts of the points that have some: the most important points first, and names before numbers."""
    named = [dot for dot in shown if dot.labels]
    named.sort(key=lambda dot: (-_ORDER[dot.standing], -len(dot.labels[0])))
    wanted = [
        Wanted(
            *frame.point(dot.x, dot.y), _DOT_RADIUS[dot.standing], dot.labels, dot.standing is Standing.CHOSEN
        )
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


_POINT_RADIUS = 4.5
_LINE_COLOURS = 7


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a line: its tooltip, a label beside it, and whether its mark is hollow."""

    x: float
    y: float
    tip: str
    label: str = ""
    is_hollow: bool = False


@dataclass(frozen=True)
class Series:
    """A line. An ideal one is dashed, grey and without points; `low` and `high` are a band around it.

    Points of a line without marks have neither marks nor tooltips.
    """

    name: str
    points: tuple[Point, ...]
    is_ideal: bool = False
    has_marks: bool = True
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True)
class LineChart:
    """The chart's info: lines over the same axes."""

    title: str
    description: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    caption: str = ""


def line_chart(chart: LineChart) -> Markup:
    """The chart as a figure."""
    entries = [
        LegendEntry(series.name, f"line {style}")
        for series, style in zip(chart.series, _styles(chart), strict=True)
    ]
    return figure(chart.title, lambda canvas: _draw_lines(chart, canvas), entries, chart.caption)


def _styles(chart: LineChart) -> list[str]:
    """A class for each line; colours come round again after the last."""
    styles, used = [], 0
    for series in chart.series:
        styles.append("ideal" if series.is_ideal else f"c{used % _LINE_COLOURS + 1}")
        used += not series.is_ideal
    return styles


def _draw_lines(chart: LineChart, canvas: Canvas) -> Markup:
    xs = [point.x for series in chart.series for point in series.points]
    ys = [
        value
        for series in chart.series
        for value in (*(point.y for point in series.points), *series.low, *series.high)
    ]
    frame, axes = framed(canvas, chart.x, chart.y, xs, ys)
    styled = list(zip(chart.series, _styles(chart), strict=True))
    return drawn(
        canvas,
        chart.title,
        chart.description,
        axes,
        join(_band(series, style, frame) for series, style in styled if series.low),
        join(_line(series, style, frame) for series, style in styled if len(series.points) > 1),
        join(mark for series, style in styled for mark in _point_marks(series, style, frame)),
        join(_point_labels(chart, frame)),
    )


def _band(series: Series, style: str, frame: Frame) -> Markup:
    xs = [point.x for point in series.points]
    up = [frame.point(x, y) for x, y in zip(xs, series.high, strict=True)]
    down = [frame.point(x, y) for x, y in zip(xs, series.low, strict=True)]
    return path([*up, *reversed(down)], f"band {style}")


def _line(series: Series, style: str, frame: Frame) -> Markup:
    return path([frame.point(point.x, point.y) for point in series.points], f"curve {style}")


def _point_marks(series: Series, style: str, frame: Frame) -> Iterator[Markup]:
    if series.is_ideal or not series.has_marks:
        return
    for point in series.points:
        x, y = frame.point(point.x, point.y)
        hollow = " hollow" if point.is_hollow else ""
        yield element(
            "circle", element("title", point.tip), cx=x, cy=y, r=_POINT_RADIUS, class_=f"node {style}{hollow}"
        )


def _point_labels(chart: LineChart, frame: Frame) -> Iterator[Markup]:
    points = [point for series in chart.series for point in series.points if point.label]
    wanted = [Wanted(*frame.point(point.x, point.y), _POINT_RADIUS, (point.label,)) for point in points]
    others = [
        Box(x - _POINT_RADIUS, y - _POINT_RADIUS, x + _POINT_RADIUS, y + _POINT_RADIUS)
        for series in chart.series
        for x, y in (frame.point(point.x, point.y) for point in series.points if not point.label)
    ]
    area = frame.area
    within = Box(area.left + 2, area.top - 8, frame.canvas.width, area.bottom - 2)
    for place in place_labels(wanted, FONT_SIZE, within, others, above=True):
        if place is not None:
            yield text_at(place.x, place.y, place.text, "label", place.anchor)
