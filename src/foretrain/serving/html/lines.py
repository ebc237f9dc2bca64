"""Lines against a number: throughput or step time over devices, with what would be ideal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from foretrain.serving.html.drawing import (
    FONT_SIZE,
    Canvas,
    Frame,
    LegendEntry,
    drawn,
    figure,
    framed,
    path,
    text_at,
)
from foretrain.serving.html.labels import Box, Wanted, place_labels
from foretrain.serving.html.markup import Markup, element, join
from foretrain.serving.html.scales import Axis

_RADIUS = 4.5
_COLOURS = 7


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a line: what hovering tells, a word beside it, and whether it is not to be had."""

    x: float
    y: float
    tip: str
    label: str = ""
    is_hollow: bool = False


@dataclass(frozen=True)
class Series:
    """A line. An ideal one is dashed, grey and without points; `low` and `high` are a band around it."""

    name: str
    points: tuple[Point, ...]
    is_ideal: bool = False
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
    return figure(chart.title, lambda canvas: _draw(chart, canvas), entries, chart.caption)


def _styles(chart: LineChart) -> list[str]:
    """A class for each line; colours come round again after the last."""
    styles, used = [], 0
    for series in chart.series:
        styles.append("ideal" if series.is_ideal else f"c{used % _COLOURS + 1}")
        used += not series.is_ideal
    return styles


def _draw(chart: LineChart, canvas: Canvas) -> Markup:
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
        join(mark for series, style in styled for mark in _marks(series, style, frame)),
        join(_labels(chart, frame)),
    )


def _band(series: Series, style: str, frame: Frame) -> Markup:
    xs = [point.x for point in series.points]
    up = [frame.point(x, y) for x, y in zip(xs, series.high, strict=True)]
    down = [frame.point(x, y) for x, y in zip(xs, series.low, strict=True)]
    return path([*up, *reversed(down)], f"band {style}")


def _line(series: Series, style: str, frame: Frame) -> Markup:
    return path([frame.point(point.x, point.y) for point in series.points], f"curve {style}")


def _marks(series: Series, style: str, frame: Frame) -> Iterator[Markup]:
    if series.is_ideal:
        return
    for point in series.points:
        x, y = frame.point(point.x, point.y)
        hollow = " hollow" if point.is_hollow else ""
        yield element(
            "circle", element("title", point.tip), cx=x, cy=y, r=_RADIUS, class_=f"node {style}{hollow}"
        )


def _labels(chart: LineChart, frame: Frame) -> Iterator[Markup]:
    points = [point for series in chart.series for point in series.points if point.label]
    wanted = [Wanted(*frame.point(point.x, point.y), _RADIUS, (point.label,)) for point in points]
    others = [
        Box(x - _RADIUS, y - _RADIUS, x + _RADIUS, y + _RADIUS)
        for series in chart.series
        for x, y in (frame.point(point.x, point.y) for point in series.points if not point.label)
    ]
    area = frame.area
    within = Box(area.left + 2, area.top - 8, frame.canvas.width, area.bottom - 2)
    for place in place_labels(wanted, FONT_SIZE, within, others, above=True):
        if place is not None:
            yield text_at(place.x, place.y, place.text, "label", place.anchor)
