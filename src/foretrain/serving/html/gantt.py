"""A Gantt chart as SVG: a lane for each node, as high as its GPUs; jobs as bars, late ones orange."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from foretrain.scheduling.charts import Bar, Gantt
from foretrain.serving.html.drawing import (
    FONT_SIZE,
    Canvas,
    LegendEntry,
    drawn,
    figure,
    line,
    text_at,
    text_width,
)
from foretrain.serving.html.page import Markup, element, join
from foretrain.serving.html.scales import Axis, Quantity, Scale, ticks
from foretrain.units import format_duration

_TOP, _BOTTOM, _GAP = 8.0, 44.0, 3.0
_LEAST_LANE, _MOST_LANE = 5.0, 46.0
_MOST_HEIGHT = 1_100.0
_LEAST_NAMED = 11.0
_LABEL = 10.5
_SHADES = 16


def gantt_figure(chart: Gantt) -> Markup:
    """The chart as a figure."""
    if not chart.lanes:
        return Markup("")
    if chart.shares:
        legend = [LegendEntry("GPUs in use: the darker, the more", "box c1")]
        caption = "Too many jobs to draw one by one: each cell is the share of a node's GPUs in use."
    else:
        legend = [LegendEntry("job, on time", "box c1"), LegendEntry("job that ends late", "box c6"),
                  LegendEntry("node on, GPUs idle", "box c8")]  # fmt: skip
        caption = "A lane is a node, its height the GPUs. Point at a bar for its job."
    return figure("Who runs where", lambda canvas: _draw(chart, canvas), legend, caption)


def _draw(chart: Gantt, canvas: Canvas) -> Markup:
    tallest = max(lane.gpus for lane in chart.lanes)
    room = _MOST_HEIGHT / len(chart.lanes) - _GAP
    of_tallest = max(_LEAST_LANE, min(_MOST_LANE, 6.0 * tallest, room))
    if chart.shares:
        heights = [of_tallest] * len(chart.lanes)
    else:
        heights = [max(_LEAST_LANE, of_tallest * lane.gpus / tallest) for lane in chart.lanes]
    tops = [_TOP + sum(heights[:index]) + _GAP * index for index in range(len(heights))]
    bottom = tops[-1] + heights[-1] + _GAP
    sized = replace(canvas, height=bottom + _BOTTOM)
    every = _named_every(heights)
    names = [
        _short(lane.name, canvas) if index % every == 0 else "" for index, lane in enumerate(chart.lanes)
    ]
    left = 10 + max(text_width(name, FONT_SIZE) for name in names)
    span = max(chart.end_seconds - chart.start_seconds, 1.0)
    scale = Scale(chart.start_seconds, chart.start_seconds + span, left, canvas.width - 8, is_log=False)
    lanes = join(
        text_at(left - 8, tops[index] + heights[index] / 2 + 0.35 * FONT_SIZE, name, "tick", "end")
        for index, name in enumerate(names)
        if name
    )
    content = (
        join(_cells(chart, scale, tops, heights))
        if chart.shares
        else join((*_on(chart, scale, tops, heights), *_bars(chart, scale, tops, heights)))
    )
    description = f"{len(chart.lanes)} nodes over {format_duration(span)}"
    return drawn(sized, "Who runs where", description, join(_time_axis(scale, bottom, sized)), lanes, content)


def _named_every(heights: list[float]) -> int:
    """Every how many lanes a name has room."""
    least = min(heights) + _GAP
    return max(1, -(-int(_LEAST_NAMED + _GAP) // int(least)) if least < _LEAST_NAMED + _GAP else 1)


def _short(name: str, canvas: Canvas) -> str:
    return name.partition(" · ")[0].partition(" ")[2] if canvas.name == "narrow" else name


def _time_axis(scale: Scale, bottom: float, canvas: Canvas) -> Iterator[Markup]:
    axis = Axis("time", Quantity.TIME, is_log=False)
    marks = ticks(scale, axis.quantity, canvas.x_ticks)
    for tick in marks:
        at = scale.pixel(tick.value)
        yield line(at, _TOP, at, bottom, "grid")
        yield text_at(at, bottom + 18, tick.text, "tick", "middle")
    yield line(scale.start, bottom, scale.end, bottom, "axis")
    yield text_at(scale.end, canvas.height - 6, axis.label, "axis-label", "end")


def _on(chart: Gantt, scale: Scale, tops: list[float], heights: list[float]) -> Iterator[Markup]:
    for lane, spans in enumerate(chart.on):
        per_gpu = heights[lane] / chart.lanes[lane].gpus
        for begin, end, gpus in spans:
            yield _box(scale.pixel(begin), tops[lane], scale.pixel(end), gpus * per_gpu, "lane-on")


def _bars(chart: Gantt, scale: Scale, tops: list[float], heights: list[float]) -> Iterator[Markup]:
    names: dict[str, int] = {}
    for bar in sorted(chart.bars, key=lambda each: each.start_seconds):
        number = names.setdefault(bar.job, len(names))
        yield _bar(bar, number, scale, tops[bar.lane], heights[bar.lane] / chart.lanes[bar.lane].gpus)


def _bar(bar: Bar, number: int, scale: Scale, top: float, per_gpu: float) -> Markup:
    x, right = scale.pixel(bar.start_seconds), scale.pixel(bar.end_seconds)
    y, height = top + bar.first_gpu * per_gpu, bar.gpus * per_gpu
    colour = ("c6", "c2") if bar.is_late else ("c1", "c5")
    tip = (
        f"{bar.job}: {bar.gpus} GPU{'' if bar.gpus == 1 else 's'} on {bar.node_type}, "
        f"{format_duration(bar.start_seconds)} to {format_duration(bar.end_seconds)}"
        f"{', ends late' if bar.is_late else ''}"
    )
    box = _box(x, y, right, height, f"bar {colour[number % 2]}", tip)
    room = right - x - 6
    if height < _LEAST_NAMED or text_width(bar.job, _LABEL) > room:
        return box
    return join((box, text_at(x + 3, y + height / 2 + 0.35 * _LABEL, bar.job, "bar-label")))


def _cells(chart: Gantt, scale: Scale, tops: list[float], heights: list[float]) -> Iterator[Markup]:
    """Cells of a lane with the same shade are drawn as one."""
    columns = len(chart.shares[0])
    width = (chart.end_seconds - chart.start_seconds) / columns
    for lane, shares in enumerate(chart.shares):
        shades = [math.ceil(_SHADES * share - 1e-6) if share > 0 else -1 for share in shares]
        begin = 0
        for column in range(1, columns + 1):
            if column == columns or shades[column] != shades[begin]:
                if shades[begin] >= 0:
                    x, right = (scale.pixel(chart.start_seconds + width * edge) for edge in (begin, column))
                    yield element(
                        "rect", x=x, y=tops[lane], width=max(0.4, right - x), height=heights[lane] + _GAP,
                        class_="cell", fill_opacity=max(0.06, shades[begin] / _SHADES),
                    )  # fmt: skip
                begin = column


def _box(x: float, y: float, right: float, height: float, class_: str, tip: str = "") -> Markup:
    return element(
        "rect", element("title", tip) if tip else "", x=x, y=y, width=max(0.5, right - x), height=height,
        class_=class_,
    )  # fmt: skip
