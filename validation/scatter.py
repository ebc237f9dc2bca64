"""Plots of a suite: predicted against measured, a point a case; probabilities against what came true."""

from __future__ import annotations

import math
import random
from pathlib import Path

from foretrain.serving.rendering.charts import save_spec
from foretrain.serving.views.vega import (
    GREY,
    INK,
    LINE,
    PALETTE,
    ChartAxis,
    ChartLine,
    ChartQuantity,
    figure,
    layer,
    line_layers,
)
from validation.report import Case, SuiteReport, judged_method

_POINTS = 4000
_WITHIN = 1.25
"""The band drawn around equality: a quarter off, either way."""
_GROUPS = 10
"""Groups with a colour of their own; the others share one."""
_COLOURS = (*PALETTE[:-1], "#332288", "#882255", "#44aa99")
_SIZE = 380
_DOT = {"size": 10, "opacity": 0.5}


def draw(report: SuiteReport, path: Path) -> None:
    """Draw the judged method of a suite; a suite without positive cases is not drawn."""
    method = judged_method(report.cases)
    shown = [case for case in report.cases if _drawable(case, method)]
    if method is None or not shown:
        return
    if len(shown) > _POINTS:
        shown = random.Random(0).sample(shown, _POINTS)
    groups = sorted({case.group for case in shown})
    named = {group: group for group in groups[:_GROUPS]}
    by_name: dict[str, list[Case]] = {name: [] for name in (*named, *(["others"] * (len(groups) > _GROUPS)))}
    for case in shown:
        by_name[named.get(case.group, "others")].append(case)
    points = [
        ChartLine(
            name, [case.measured for case in cases], [case.predicted[method] for case in cases],
            GREY if name == "others" else _COLOURS[place], is_line=False, mark=_DOT,
        )
        for place, (name, cases) in enumerate(by_name.items())
    ]  # fmt: skip
    values = [value for case in shown for value in (case.measured, case.predicted[method])]
    ends = min(values) / 1.2, max(values) * 1.2
    x = ChartAxis("measured", ChartQuantity.NUMBER, *ends, _SIZE, is_log=True)
    y = ChartAxis("predicted", ChartQuantity.NUMBER, *ends, _SIZE, is_log=True, is_vertical=True)
    band = [{"x": end, "y": end / _WITHIN, "high": end * _WITHIN, "equal": end} for end in ends]
    across, up = x.channel("x"), y.channel("y")
    equality = {"x": across, "y": {**up, "field": "equal"}}
    layers = [
        layer(
            band,
            {"type": "area", "color": LINE, "clip": True},
            {"x": across, "y": up, "y2": {"field": "high"}},
        ),
        layer(band, {"type": "line", "color": INK, "strokeWidth": 1}, equality),
        *line_layers(points, x, y),
    ]
    title = {"text": f"{report.suite}: {method}", "subtitle": "band: within 25 %"}
    description = f"{len(shown)} cases of {report.suite}: predicted by {method} against measured."
    save_spec(
        {**figure("", description, {"width": _SIZE, "height": _SIZE, "layer": layers}), "title": title}, path
    )


def draw_reliability(report: SuiteReport, path: Path) -> None:
    """Draw probabilities as stated against how often they came true; the area of a point is their number."""
    if not report.reliability:
        return
    stated, met, counts = zip(*report.reliability, strict=True)
    x = ChartAxis("stated probability", ChartQuantity.NUMBER, 0.0, 1.0, _SIZE)
    y = ChartAxis("share that came true", ChartQuantity.NUMBER, 0.0, 1.0, _SIZE, is_vertical=True)
    lines = [
        ChartLine("as stated", [0, 1], [0, 1], INK, mark={"strokeWidth": 1}),
        ChartLine("came true", stated, met, PALETTE[0], mark={"strokeWidth": 1.5}),
    ]
    rows = [
        {"x": one, "y": other, "size": 250 * count / max(counts) + 15}
        for one, other, count in zip(stated, met, counts, strict=True)
    ]
    size = {"field": "size", "type": "quantitative", "scale": None, "legend": None}
    mark = {"type": "point", "filled": True, "color": PALETTE[0], "opacity": 1}
    points = layer(rows, mark, {"x": x.channel("x"), "y": y.channel("y"), "size": size})
    content = {"width": _SIZE, "height": _SIZE, "layer": [*line_layers(lines, x, y), points]}
    save_spec(
        figure(f"{report.suite}: reliability", "Stated probabilities against what came true.", content), path
    )


def _drawable(case: Case, method: str | None) -> bool:
    predicted = case.predicted.get(method or "", 0.0)
    return case.measured > 0 and predicted > 0 and math.isfinite(predicted)
