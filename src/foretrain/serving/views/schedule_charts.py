"""The chart of a schedule: who ran where, over GPUs, waiting jobs and cost on the same axis of time."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from foretrain.serving.views.blocks import Chart
from foretrain.serving.views.charts import NARROW, upright
from foretrain.serving.views.vega import (
    GREY,
    LINE,
    MUTED,
    ON_COLOUR,
    PALETTE,
    PAPER,
    ChartAxis,
    ChartLine,
    ChartQuantity,
    Spec,
    figure,
    layer,
    legend,
    line_layers,
    text_width,
)
from foretrain.units import format_duration, format_money

if TYPE_CHECKING:
    from foretrain.scheduling.accounting import Comparison, Outcome
    from foretrain.scheduling.charts import Bar, Gantt, OverTime


_GAP = 3.0
_LEAST_LANE, _MOST_LANE, _MOST_HEIGHT = 5.0, 56.0, 1_100.0
_GPU = 16.0
"""Height of a GPU where there is room: enough for the name of its job."""
_LEAST_NAMED = 11.0
_BAR_LABEL = 10.5
_SHADES = 16


def comparison_chart(answer: Comparison) -> Chart:
    """That of the best policy."""
    return schedule_chart(answer.best)


def schedule_chart(outcome: Outcome) -> Chart:
    """Who ran where, as a Gantt chart, over GPUs, waiting jobs and cost on the same axis of time."""
    from foretrain.scheduling.charts import gantt, over_time

    chart, data = gantt(outcome), over_time(outcome)
    bound = "" if outcome.bound_usd is None else f", lower bound {format_money(outcome.bound_usd)}"
    title = f"{outcome.policy}: {format_money(outcome.total_usd)}{bound}"
    span = format_duration(chart.end_seconds - chart.start_seconds)
    description = (
        f"{len(chart.lanes)} nodes over {span}: jobs by node, GPUs in use, jobs that wait, and cost."
    )
    if chart.shares:
        caption = "Too many jobs to draw one by one: the darker a node, the more of its GPUs are in use."
    else:
        caption = "A lane is a node, its height the GPUs. Point at a bar for its job."
    spec = partial(_schedule, title, description, chart, data)
    return Chart("Who runs where", description, spec=spec, caption=caption if chart.lanes else "")


def _schedule(title: str, description: str, chart: Gantt, data: OverTime, width: int) -> Spec:
    if not chart.lanes:
        nothing = layer(
            [{"text": "No job ran."}], {"type": "text", "color": MUTED}, {"text": {"field": "text"}}
        )
        return figure(title, description, {"width": width, "height": 60, **nothing})
    end = max(chart.end_seconds, chart.start_seconds + 1.0)
    x = ChartAxis("time", ChartQuantity.TIME, chart.start_seconds, end, width, has_labels=False)
    lanes, height = _lanes(chart, x)
    first = {"width": width, "height": height, "layer": lanes}
    if not data.seconds:
        return figure(title, description, first)
    panels = (
        ("GPUs", ChartQuantity.COUNT, [("on", data.paid_gpus, GREY), ("in use", data.used_gpus, PALETTE[0])]),
        ("jobs waiting", ChartQuantity.COUNT, [("jobs waiting", data.waiting_jobs, PALETTE[1])]),
        ("cost so far", ChartQuantity.MONEY,
         [("nodes", data.spent_usd, PALETTE[0]), ("lateness", data.late_usd, PALETTE[5])]),
    )  # fmt: skip
    views: list[Spec] = [first]
    for place, (name, quantity, columns) in enumerate(panels):
        along = ChartAxis(
            "time", ChartQuantity.TIME, x.low, x.high, width, has_labels=place == len(panels) - 1
        )
        lines = [ChartLine(each, data.seconds, values, colour, is_steps=each != "nodes")
                 for each, values, colour in columns]  # fmt: skip
        layers = line_layers(lines, along, upright(lines, name, quantity, 80), has_legend=len(lines) > 1)
        views.append({"width": width, "height": 80, "layer": layers})
    independent = {"color": "independent"}
    return figure(
        title, description, {"vconcat": views, "resolve": {"scale": independent, "legend": independent}}
    )


def _lanes(chart: Gantt, x: ChartAxis) -> tuple[list[Spec], float]:
    """The Gantt chart, and its height: a lane is as high as its GPUs, as far as there is room."""
    tallest = max(lane.gpus for lane in chart.lanes)
    room = _MOST_HEIGHT / len(chart.lanes) - _GAP
    of_tallest = max(_LEAST_LANE, min(_MOST_LANE, _GPU * tallest, room))
    heights = [
        of_tallest if chart.shares else max(_LEAST_LANE, of_tallest * lane.gpus / tallest)
        for lane in chart.lanes
    ]
    tops = [sum(heights[:index]) + _GAP * (index + 1) for index in range(len(heights))]
    bottom = tops[-1] + heights[-1] + _GAP
    y = {"field": "y", "type": "quantitative", "axis": None,
         "scale": {"domain": [0, bottom], "nice": False, "reverse": True}}  # fmt: skip
    box = {"x": x.channel("x"), "x2": {"field": "end"}, "y": y, "y2": {"field": "bottom"}}
    layers = [_cells(chart, tops, heights, box)] if chart.shares else _bars(chart, tops, heights, box, x)
    # Names stand left of the lanes, as many as have room.
    every = max(1, math.ceil((_LEAST_NAMED + _GAP) / (min(heights) + _GAP)))
    is_narrow = x.length < NARROW
    names = [
        {
            "y": tops[index] + heights[index] / 2,
            "name": lane.name.partition(" · ")[0] if is_narrow else lane.name,
        }
        for index, lane in enumerate(chart.lanes)
        if index % every == 0
    ]
    text = {"type": "text", "align": "right", "baseline": "middle", "color": MUTED}
    layers.append(layer(names, text, {"x": {"value": -8}, "y": y, "text": {"field": "name"}}))
    return layers, bottom


def _bars(chart: Gantt, tops: list[float], heights: list[float], box: Spec, x: ChartAxis) -> list[Spec]:
    """Jobs over what was on; bars of neighbouring jobs differ in shade, and carry names where these fit."""
    states = {"job, on time": PALETTE[4], "job that ends late": PALETTE[1], "node on, GPUs idle": LINE}
    rows: list[dict[str, object]] = []
    for lane, spans in enumerate(chart.on):
        per_gpu = heights[lane] / chart.lanes[lane].gpus
        rows += [
            {"x": begin, "end": end, "y": tops[lane], "bottom": tops[lane] + gpus * per_gpu,
             "state": "node on, GPUs idle", "shade": 1}
            for begin, end, gpus in spans
        ]  # fmt: skip
    idle = len(rows)
    numbers: dict[str, int] = {}
    names = []
    for bar in sorted(chart.bars, key=lambda each: each.start_seconds):
        shade = 1.0 - 0.3 * (numbers.setdefault(bar.job, len(numbers)) % 2)
        per_gpu = heights[bar.lane] / chart.lanes[bar.lane].gpus
        top, height = tops[bar.lane] + bar.first_gpu * per_gpu, bar.gpus * per_gpu
        rows.append(
            {"x": bar.start_seconds, "end": bar.end_seconds, "y": top, "bottom": top + height,
             "state": "job that ends late" if bar.is_late else "job, on time", "shade": shade,
             "tip": _bar_tip(bar)}
        )  # fmt: skip
        room = x.pixel(bar.end_seconds) - x.pixel(bar.start_seconds) - 6
        if height >= _LEAST_NAMED and text_width(bar.job, _BAR_LABEL) <= room:
            names.append({"x": bar.start_seconds, "y": top + height / 2, "name": bar.job})
    colour = {
        "field": "state", "type": "nominal",
        "scale": {"domain": list(states), "range": list(states.values())},
        "legend": legend(list(states), x.length, symbolType="square", symbolStrokeWidth=0, offset=8),
    }  # fmt: skip
    shade_channel = {"field": "shade", "type": "quantitative", "scale": None, "legend": None}
    layers = [
        layer(rows[:idle], {"type": "rect", "aria": False}, {**box, "color": colour}),
        layer(rows[idle:], {"type": "rect", "stroke": PAPER, "strokeWidth": 0.75},
              {**box, "color": colour, "opacity": shade_channel}),
    ]  # fmt: skip
    if names:
        mark = {"type": "text", "align": "left", "baseline": "middle", "dx": 4, "fontSize": _BAR_LABEL,
                "color": ON_COLOUR}  # fmt: skip
        layers.append(layer(names, mark, {"x": box["x"], "y": box["y"], "text": {"field": "name"}}))
    return layers


def _bar_tip(bar: Bar) -> str:
    return (
        f"{bar.job}: {bar.gpus} GPU{'' if bar.gpus == 1 else 's'} on {bar.node_type}, "
        f"{format_duration(bar.start_seconds)} to {format_duration(bar.end_seconds)}"
        f"{', ends late' if bar.is_late else ''}"
    )


def _cells(chart: Gantt, tops: list[float], heights: list[float], box: Spec) -> Spec:
    """Shares of GPUs in use; cells of a lane with the same shade are one."""
    columns = len(chart.shares[0])
    width = (chart.end_seconds - chart.start_seconds) / columns
    rows = []
    for lane, shares in enumerate(chart.shares):
        shades = [math.ceil(_SHADES * share - 1e-6) if share > 0 else -1 for share in shares]
        begin = 0
        for column in range(1, columns + 1):
            if column == columns or shades[column] != shades[begin]:
                if shades[begin] >= 0:
                    left, right = (chart.start_seconds + width * edge for edge in (begin, column))
                    rows.append({"x": left, "end": right, "y": tops[lane],
                                 "bottom": tops[lane] + heights[lane] + _GAP,
                                 "shade": max(0.06, shades[begin] / _SHADES)})  # fmt: skip
                begin = column
    shade = {"field": "shade", "type": "quantitative", "scale": None, "legend": None}
    return layer(rows, {"type": "rect", "color": PALETTE[0], "aria": False}, {**box, "opacity": shade})
