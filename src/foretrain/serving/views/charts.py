"""The chart of every answer: from an info object of the core to a Vega-Lite specification.

A chart is made for a width, the pixels between its vertical axes: a report draws it for a screen and for a
phone, a file once. `series` of a chart are what a terminal draws with characters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from foretrain.errors import InvalidRequest
from foretrain.serving.views.blocks import Chart, Series
from foretrain.serving.views.vega import (
    ACCENT,
    GREY,
    INK,
    LINE,
    MUTED,
    PALETTE,
    PAPER,
    STRONG_LINE,
    WARNING,
    Box,
    ChartAxis,
    ChartLine,
    ChartQuantity,
    Placed,
    Spec,
    Wanted,
    axis_over,
    figure,
    label_layer,
    layer,
    legend,
    line_layers,
    place_labels,
    rule,
)
from foretrain.serving.views.wording import percent
from foretrain.units import DAY, HOUR, MINUTE, format_duration, format_money

if TYPE_CHECKING:
    from foretrain.convergence.forecast import Convergence
    from foretrain.estimates import Quantiles
    from foretrain.jobs.predict import JobPrediction
    from foretrain.learning.regression.learn import LearnAnswer
    from foretrain.learning.scaling.answer import ScalingAnswer
    from foretrain.measuring.watching.report import Report
    from foretrain.planning.frontier import Frontier, Plan
    from foretrain.planning.rent_or_buy import RentOrBuy
    from foretrain.prediction.advice.scaling_curve import ScalingCurve
    from foretrain.prediction.resources.consumption import Consumption, ConsumptionAnswer
    from foretrain.prediction.resources.pairing import PairAnswer
    from foretrain.serving.verbs.measuring import Measured
    from foretrain.store.runs import Resource

_HEIGHT = 340
NARROW = 400
"""Below this width charts that stand side by side stand below each other."""


# ---------------------------------------------------------------- plans


_CELL = 4.0
"""Size in pixels of the square whose faint points are drawn as one, which keeps the file small."""
_WORTH_SHOWING = 12.0
"""Faint points beyond everything else by more than this factor are counted, not drawn."""
_SHORT_FRONT = 6
"""Points of a front that all have room for a name."""
_TIME_UNITS = ((DAY, "days"), (HOUR, "hours"), (MINUTE, "minutes"), (1.0, "seconds"))


def front_chart(frontier: Frontier, name_of: Callable[[Plan], str]) -> Chart:
    """Time against money: the front among all plans, with the limits; `name_of` names the machines."""
    plans = frontier.plans
    longest = max(plans[index].seconds.p50 for index in frontier.front)
    scale, unit = next((each for each in _TIME_UNITS if longest >= 2 * each[0]), _TIME_UNITS[-1])
    on_front = set(frontier.front)
    others = [plan for index, plan in enumerate(plans) if index not in on_front]
    near = [
        plan for plan in others
        if plan.seconds.p50 <= 4 * longest and plan.usd.p50 <= 4 * max(plans[i].usd.p50 for i in on_front)
    ]  # fmt: skip
    chosen = [] if frontier.chosen is None else [plans[frontier.chosen]]

    def places(shown: Sequence[Plan]) -> tuple[list[float], list[float]]:
        return [plan.seconds.p50 / scale for plan in shown], [plan.usd.p50 for plan in shown]

    drawn = _worth_drawing(frontier)
    left_out = len(plans) - len(drawn)
    return Chart(
        "Time against money",
        f"{len(plans)} plans, of which {len(frontier.front)} are beaten by no other.",
        f"time, {unit}",
        "cost, USD",
        (
            Series("others", *places(near), is_line=False),
            Series("front", *places(list(frontier.on_front()))),
            Series("chosen", *places(chosen), is_line=False, is_main=True),
        ),
        is_log=True,
        spec=partial(_front, frontier, drawn, name_of),
        caption=f"Not drawn, far beyond the upper right: {left_out:,}." if left_out else "",
    )


def _worth_drawing(frontier: Frontier) -> tuple[int, ...]:
    """All plans that stand out, and the others that are not hopelessly far from them."""
    main = {*frontier.front, frontier.reported}
    extra = frontier.two_phases
    longest = max(frontier.plans[index].seconds.p90 for index in main)
    dearest = max(frontier.plans[index].usd.p90 for index in main)
    most = (
        _WORTH_SHOWING * max(longest, extra.plan.seconds if extra else 0, frontier.deadline_seconds or 0),
        _WORTH_SHOWING * max(dearest, extra.plan.usd if extra else 0, frontier.budget_usd or 0),
    )
    return tuple(
        index
        for index, plan in enumerate(frontier.plans)
        if index in main or (plan.seconds.p50 <= most[0] and plan.usd.p50 <= most[1])
    )


def _front(frontier: Frontier, drawn: Sequence[int], name_of: Callable[[Plan], str], width: int) -> Spec:
    height = _HEIGHT
    plans, two, reported = frontier.plans, frontier.two_phases, frontier.reported
    chosen = plans[reported]
    deadline, budget = frontier.deadline_seconds, frontier.budget_usd
    times = [plans[index].seconds.p50 for index in drawn] + [chosen.seconds.p10, chosen.seconds.p90]
    money = [plans[index].usd.p50 for index in drawn] + [chosen.usd.p10, chosen.usd.p90]
    times += [] if deadline is None else [deadline]
    money += [] if budget is None else [budget]
    if two is not None:
        times, money = [*times, two.plan.seconds], [*money, two.plan.usd]
    x = axis_over(times, "time of the whole job", ChartQuantity.TIME, width, is_log=True)
    y = axis_over(money, "cost of the whole job", ChartQuantity.MONEY, height, is_log=True, is_vertical=True)

    # First the words of the legend, then the points in the order they are drawn.
    names = {"chosen": "chosen" if frontier.meets_limits else "nearest to the limits",
             "front": "front: nothing is both faster and cheaper", "two": "in two phases",
             "other": "other plans"}  # fmt: skip
    on_front = [index for index in frontier.front if index != reported]
    rows = _faint(frontier, [i for i in drawn if i not in frontier.front and i != reported], name_of, x, y)
    rows = [{**row, "kind": names["other"]} for row in rows]
    rows += [_dot(plans[index], name_of, names["front"]) for index in on_front]
    if two is not None:
        tip = f"two phases: {format_duration(two.plan.seconds)}, {format_money(two.plan.usd)}"
        rows.append({"x": two.plan.seconds, "y": two.plan.usd, "tip": tip, "kind": names["two"]})
    rows.append(_dot(chosen, name_of, names["chosen"]))
    kinds = [name for name in names.values() if any(row["kind"] == name for row in rows)]
    styles = {"chosen": (ACCENT, PAPER, 200), "front": (PAPER, ACCENT, 70), "two": (PALETTE[1], PAPER, 110),
              "other": (STRONG_LINE, STRONG_LINE, 14)}  # fmt: skip
    used = [styles[key] for key, name in names.items() if name in kinds]
    key = legend(kinds, width)

    def by_kind(place: int) -> Spec:
        # Without a type, Vega-Lite interpolates numbers between the first and the last.
        scale = {"type": "ordinal", "domain": kinds, "range": [style[place] for style in used]}
        return {"field": "kind", "type": "nominal", "scale": scale, "legend": key}

    front = sorted((plans[index] for index in {*frontier.front}), key=lambda plan: plan.seconds.p50)
    line = [{"x": plan.seconds.p50, "y": plan.usd.p50} for plan in front]
    across, up = x.channel("x"), y.channel("y")
    placed, rules = _front_labels(frontier, on_front, name_of, x, y)
    interval = {"type": "rule", "color": ACCENT, "opacity": 0.6, "strokeWidth": 1.5}
    layers = [
        *rules,
        layer(line, {"type": "line", "color": ACCENT, "opacity": 0.55, "strokeWidth": 1.5},
              {"x": across, "y": up}),
        layer([{"x": chosen.seconds.p10, "end": chosen.seconds.p90, "y": chosen.usd.p50}], interval,
              {"x": across, "x2": {"field": "end"}, "y": up}),
        layer([{"x": chosen.seconds.p50, "y": chosen.usd.p10, "end": chosen.usd.p90}], interval,
              {"x": across, "y": up, "y2": {"field": "end"}}),
        layer(rows, {"type": "point", "opacity": 1, "strokeWidth": 2},
              {"x": across, "y": up, "fill": by_kind(0), "stroke": by_kind(1), "size": by_kind(2)}),
        *label_layer(placed, x, y),
    ]  # fmt: skip
    description = f"{len(plans)} plans, of which {len(frontier.front)} are beaten by no other."
    return figure("Time against money", description, {"width": width, "height": height, "layer": layers})


def _dot(plan: Plan, name_of: Callable[[Plan], str], kind: str) -> dict[str, object]:
    tip = f"{name_of(plan)}: {format_duration(plan.seconds.p50)}, {format_money(plan.usd.p50)}"
    return {"x": plan.seconds.p50, "y": plan.usd.p50, "tip": tip, "kind": kind}


def _faint(
    frontier: Frontier, indices: Sequence[int], name_of: Callable[[Plan], str], x: ChartAxis, y: ChartAxis
) -> list[dict[str, object]]:
    """The points of one small square as one, with the tip of the first and the number of others."""
    cells: dict[tuple[int, int], list[Plan]] = {}
    for plan in (frontier.plans[index] for index in indices):
        place = round(x.pixel(plan.seconds.p50) / _CELL), round(y.pixel(plan.usd.p50) / _CELL)
        cells.setdefault(place, []).append(plan)
    dots = []
    for group in cells.values():
        dot = _dot(group[0], name_of, "")
        more = f" (and {len(group) - 1} more here)" if len(group) > 1 else ""
        dots.append({**dot, "tip": f"{dot['tip']}{more}"})
    return dots


def _front_labels(
    frontier: Frontier, on_front: Sequence[int], name_of: Callable[[Plan], str], x: ChartAxis, y: ChartAxis
) -> tuple[list[Placed | None], list[Spec]]:
    """Labels of points, the most important first, and rules of the limits; all keep clear of each other."""
    plans, numbers = frontier.plans, {index: place for place, index in enumerate(frontier.front, start=1)}
    chosen = plans[frontier.reported]
    wanted, taken, rules = [], [], []
    if frontier.deadline_seconds is not None:
        at = frontier.deadline_seconds
        taken.append(Box(x.pixel(at) - 1, 0, x.pixel(at) + 1, y.length))
        rules.append(rule(at, x, WARNING))
        ends = (8.0, y.length - 8)
        sides = (("left", 6.0), ("right", -6.0))
        places = tuple((anchor, across, down) for down in ends for anchor, across in sides)
        wanted.append(Wanted(at, y.high, (f"deadline {format_duration(at)}",), colour=WARNING, places=places))
    if frontier.budget_usd is not None:
        at = frontier.budget_usd
        taken.append(Box(0, y.pixel(at) - 1, x.length, y.pixel(at) + 1))
        rules.append(rule(at, y, WARNING))
        sides = (("right", -2.0), ("left", 6.0 - x.length))
        places = tuple((anchor, across, down) for anchor, across in sides for down in (-6.0, 15.0))
        wanted.append(Wanted(x.high, at, (f"budget {format_money(at)}",), colour=WARNING, places=places))
    number = numbers.get(frontier.reported)
    name = name_of(chosen)
    texts = (name,) if number is None else (f"{number} · {name}", str(number))
    wanted.append(Wanted(chosen.seconds.p50, chosen.usd.p50, texts, 8.0, is_bold=True))
    if frontier.two_phases is not None:
        two = frontier.two_phases.plan
        wanted.append(Wanted(two.seconds, two.usd, ("two phases",), 6.0))
    # On a short front all points are named, on a long one its ends and its knee; others have their number.
    notable = {frontier.front[0], frontier.front[-1], frontier.knee}
    named = [index for index in on_front if len(frontier.front) <= _SHORT_FRONT or index in notable]
    for index in sorted(on_front, key=lambda index: index not in named):
        plan, number = plans[index], numbers[index]
        texts = (f"{number} · {name_of(plan)}", str(number)) if index in named else (str(number),)
        wanted.append(Wanted(plan.seconds.p50, plan.usd.p50, texts, 5.0, colour=MUTED))
    return place_labels(wanted, x, y, taken), rules


def cost_chart(answer: RentOrBuy) -> Chart:
    """Cumulative cost of owning and of renting over the hours of use, with the break-even marked."""
    curves, hours = answer.curves, answer.break_even_hours
    after = "never" if hours is None else f"after {hours:,.0f} h of use"
    description = f"Owning and renting break even {after}."

    def spec(width: int) -> Spec:
        lines = [
            ChartLine("own", curves.hours, curves.own_usd, PALETTE[0]),
            ChartLine("rent", curves.hours, curves.rent_usd, PALETTE[1]),
        ]
        x = axis_over(curves.hours, "hours of use", ChartQuantity.NUMBER, width, margin=0.0)
        y = upright(lines, "cumulative cost", ChartQuantity.MONEY)
        marked = []
        if hours is not None:
            at = next((place for place, value in enumerate(curves.hours) if value >= hours), -1)
            wanted = Wanted(
                hours,
                curves.own_usd[at],
                (f"break-even: {hours:,.0f} h",),
                1.0,
                places=(("right", -8.0, -10.0), ("left", 8.0, 20.0)),
            )
            marked = [
                rule(hours, x, dash=(2, 3)),
                *label_layer(place_labels([wanted], x, y, above=True), x, y),
            ]
        layers = [*marked[:1], *line_layers(lines, x, y), *marked[1:]]
        return figure("Rent or buy", description, {"width": width, "height": _HEIGHT, "layer": layers})

    series = (Series("own", curves.hours, curves.own_usd), Series("rent", curves.hours, curves.rent_usd))
    return Chart("Cumulative cost", description, "hours of use", "USD", series, spec=spec)


def upright(
    lines: Sequence[ChartLine],
    title: str,
    quantity: ChartQuantity,
    height: float = _HEIGHT,
    *,
    is_log: bool = False,
) -> ChartAxis:
    """The vertical axis of some lines."""
    values = [value for line in lines for value in line.values]
    return axis_over(values, title, quantity, height, is_log=is_log, is_vertical=True)


# ---------------------------------------------------------------- steps and how they scale


def parts_chart(
    title: str,
    description: str,
    parts: Sequence[tuple[str, float]],
    write: Callable[[float], str],
    ends: Quantiles | None = None,
    capacity: float | None = None,
) -> Chart:
    """A whole and its parts as one bar; a thin line is the interval of the sum.

    `capacity` is what the parts must fit into; without it they fill the bar. `write` writes a value.
    """
    shown = [(name, value) for name, value in parts if value > 0]
    if len(shown) > len(PALETTE):  # the largest, and the others together in grey
        by_size = sorted(shown, key=lambda part: -part[1])
        kept = {name for name, _ in by_size[: len(PALETTE) - 1]}
        rest = [value for name, value in shown if name not in kept]
        shown = [part for part in shown if part[0] in kept] + [(f"{len(rest)} others", sum(rest))]
    spec = partial(_parts, title, description, shown, write, ends, capacity)
    return Chart(title, description, spec=spec)


def _parts(
    title: str,
    description: str,
    parts: Sequence[tuple[str, float]],
    write: Callable[[float], str],
    ends: Quantiles | None,
    capacity: float | None,
    width: int,
) -> Spec:
    total = sum(value for _, value in parts) or 1.0
    whole = max(total, capacity or 0.0, ends.p90 if ends else 0.0)
    rows, start = [], 0.0
    for name, value in parts:
        tip = f"{name}: {write(value)}, {percent(value / total)}"
        label = f"{name}, {percent(value / total)}" if width < NARROW else tip
        rows.append({"start": start, "end": start + value, "part": label, "tip": tip})
        start += value
    names = [str(row["part"]) for row in rows]
    x: Spec = {
        "field": "start",
        "type": "quantitative",
        "scale": {"domain": [0, whole], "nice": False},
        "axis": None,
    }
    bar = {"x": x, "x2": {"field": "end"}, "y": {"value": 6}, "y2": {"value": 34}}
    key = legend(names, width, orient="bottom", symbolType="square", symbolStrokeWidth=0, offset=8)
    colour = {"field": "part", "type": "nominal", "legend": key,
              "scale": {"domain": names, "range": list(PALETTE[: len(names)])}}  # fmt: skip
    layers = [
        layer([{"start": 0, "end": whole}], {"type": "rect", "color": LINE, "aria": False}, bar),
        layer(rows, {"type": "rect", "stroke": PAPER, "strokeWidth": 1.5}, {**bar, "color": colour}),
    ]
    if ends is not None:
        for colour_name, stroke, points in ((PAPER, 4, ()), (INK, 1.5, (ends.p10, ends.p90))):
            mark: Spec = {"type": "rule", "color": colour_name, "strokeWidth": stroke}
            layers.append(layer([{"start": ends.p10, "end": ends.p90}], mark,
                                {"x": x, "x2": {"field": "end"}, "y": {"value": 20}}))  # fmt: skip
            layers += [
                layer([{"start": end}], mark, {"x": x, "y": {"value": 14}, "y2": {"value": 26}})
                for end in points
            ]
    if capacity is not None and capacity < whole:
        mark = {"type": "rule", "color": WARNING, "strokeWidth": 1.5, "strokeDash": [5, 4]}
        layers.append(layer([{"start": capacity}], mark, {"x": x, "y": {"value": 0}, "y2": {"value": 40}}))
    return figure(title, description, {"width": width, "height": 40, "layer": layers})


def step_chart(answer: JobPrediction) -> Chart:
    """How a predicted step scales with the number of devices."""
    curve = answer.parallelism.scaling
    if curve is None:
        raise InvalidRequest("`plot` draws how a step scales: name more than one device, with `advice`")
    return scaling_chart(curve, answer.workload.source.name)


def scaling_chart(curve: ScalingCurve, model: str = "") -> Chart:
    """Samples per second over devices, with perfect scaling, the knee and the best number."""
    fixed = "the same batch in all" if curve.is_batch_fixed else "the same batch for each GPU"
    title = f"Scaling of {model}, {fixed}" if model else f"Samples per second, {fixed}"
    description = "Predicted throughput against the number of GPUs, and perfect scaling."
    points = curve.points
    counts, speeds = [point.devices for point in points], [point.samples_per_second for point in points]

    def spec(width: int) -> Spec:
        ideal = [point for point in (points[0], points[-1]) if point.efficiency > 0]
        tips = [
            f"{point.devices} GPUs: {point.samples_per_second:,.0f} samples/s, {percent(point.efficiency)} "
            f"efficient{'' if point.fits else '; does not fit'}"
            for point in points
        ]
        lines = [
            ChartLine("perfect scaling", [point.devices for point in ideal],
                      [point.samples_per_second / point.efficiency for point in ideal], GREY, is_dashed=True),
            ChartLine("predicted", counts, speeds, PALETTE[0]),
        ]  # fmt: skip
        x = axis_over(counts, "GPUs", ChartQuantity.POWERS_OF_TWO, width, is_log=True)
        y = upright(lines, "samples/s", ChartQuantity.NUMBER, is_log=True)
        rows = [{"x": count, "y": speed, "tip": tip, "fill": PALETTE[0] if point.fits else PAPER}
                for count, speed, tip, point in zip(counts, speeds, tips, points, strict=True)]  # fmt: skip
        fill = {"field": "fill", "type": "nominal", "scale": None}
        mark = {"type": "point", "size": 65, "opacity": 1, "stroke": PALETTE[0], "strokeWidth": 2}
        marks = layer(rows, mark, {"x": x.channel("x"), "y": y.channel("y"), "fill": fill})
        words = {curve.knee: "worth doubling to here", curve.best: "most samples/s"}
        wanted = [Wanted(count, speed, (words.get(count, ""),), 5.0)
                  for count, speed in zip(counts, speeds, strict=True)]  # fmt: skip
        wanted.sort(key=lambda one: not one.texts[0])
        labels = [label for label in place_labels(wanted, x, y, above=True) if label and label.text]
        layers = [*line_layers(lines, x, y), marks, *label_layer(labels, x, y)]
        return figure(title, description, {"width": width, "height": _HEIGHT, "layer": layers})

    has_hollow = any(not point.fits for point in points)
    return Chart(title, description, spec=spec, caption="Hollow: does not fit into memory." * has_hollow)


def step_scaling_chart(answer: ScalingAnswer) -> Chart:
    """Step time over devices, one line with its 80 % interval for each batch size; timings as crosses."""
    title = f"Scaling ({answer.model.form}); crosses are timings"
    description = "Predicted step time against the number of GPUs for each batch size, and what was timed."

    def spec(width: int) -> Spec:
        predicted, timed = [], []
        for place, batch in enumerate(sorted({row.batch for row in answer.predictions})):
            rows = sorted((row for row in answer.predictions if row.batch == batch),
                          key=lambda row: (row.devices, row.placement))  # fmt: skip
            steps = [row.step_seconds for row in rows]
            colour, name = PALETTE[place % len(PALETTE)], f"batch {batch}"
            predicted.append(
                ChartLine(name, [row.devices for row in rows], [step.p50 for step in steps], colour,
                          tips=[f"{row.placement}, batch {batch}: {format_duration(row.step_seconds.p50)}"
                                for row in rows],
                          low=[step.p10 for step in steps], high=[step.p90 for step in steps], has_marks=True)
            )  # fmt: skip
            seen = [(row.devices, row.timed_seconds) for row in rows if row.timed_seconds is not None]
            timed.append(
                ChartLine(name, [x for x, _ in seen], [y for _, y in seen], colour,
                          tips=[f"timed: {format_duration(y)}" for _, y in seen], is_line=False,
                          mark={"shape": "M-1,-1L1,1M1,-1L-1,1", "filled": False, "size": 90,
                                "strokeWidth": 2})
            )  # fmt: skip
        lines = [*predicted, *timed]
        counts = [value for line in lines for value in line.x]
        x = axis_over(counts, "GPUs", ChartQuantity.POWERS_OF_TWO, width, is_log=True)
        y = upright(lines, "time of a step", ChartQuantity.TIME)
        content = {"width": width, "height": _HEIGHT, "layer": line_layers(lines, x, y)}
        return figure(title, description, content)

    return Chart(title, description, "GPUs", "seconds a step", spec=spec)


# ---------------------------------------------------------------- what is learned


def residuals_chart(answer: LearnAnswer) -> Chart:
    """Rows that were left out: predicted over measured, and the residuals with the 80 % interval."""
    title = f"{answer.best.technique}, rows left out ({answer.splits[0]})"
    description = (
        f"Predicted against measured {answer.target} of rows left out, and their ratio with its interval."
    )
    measured = [row.measured for row in answer.held_out]
    predicted = [row.predicted for row in answer.held_out]
    ratios = [made / seen for made, seen in zip(predicted, measured, strict=True)]
    low, high = 1 / answer.model.p90, 1 / answer.model.p10

    def spec(width: int) -> Spec:
        is_narrow = width < NARROW
        size = width if is_narrow else (width - 70) // 2
        dots = {"size": 22, "opacity": 0.7}
        ends = [min(measured), max(measured)]
        equal = ChartLine("equal", ends, ends, MUTED, mark={"strokeWidth": 1})
        points = ChartLine("row left out", measured, predicted, PALETTE[0], is_line=False, mark=dots)
        x = axis_over(measured, f"measured {answer.target}", ChartQuantity.NUMBER, size, is_log=True)
        y = upright([points], f"predicted {answer.target}", ChartQuantity.NUMBER, is_log=True)
        left = line_layers([equal, points], x, y, has_legend=False)
        residuals = ChartLine("ratio", measured, ratios, PALETTE[0], is_line=False, mark=dots)
        band = ChartLine("80 % interval", [x.low, x.high], [1.0, 1.0], MUTED, low=[low, low],
                         high=[high, high], mark={"strokeWidth": 1})  # fmt: skip
        up = tight_axis([*residuals.values, *band.values], "predicted / measured, band: 80 % interval")
        right = line_layers([band, residuals], x, up, has_legend=False)
        panels = [{"width": size, "height": _HEIGHT, "layer": layers} for layers in (left, right)]
        return figure(title, description, {"vconcat" if is_narrow else "hconcat": panels})

    return Chart(title, description, spec=spec)


def fan_chart(answer: Convergence) -> Chart:
    """The log, the fan of what is to come, the target, and the steps at which it is met."""
    log, fan, steps, metric = answer.log, answer.fan, answer.steps, answer.target.metric
    description = f"The log to {answer.unit} {answer.seen_steps:,.6g}, then the range of 80 % probability."

    def spec(width: int) -> Spec:
        goal = answer.target.value
        marks = {"point": {"size": 12, "color": MUTED}} if len(log.steps) <= 60 else {}
        lines = [
            ChartLine("log", log.steps, log.values, MUTED, mark={"strokeWidth": 1.25, **marks}),
            ChartLine("p50, band p10 to p90", fan.steps, fan.p50, PALETTE[0], low=fan.p10, high=fan.p90),
        ]
        across = [*log.steps, *fan.steps]
        x = axis_over(across, answer.unit, ChartQuantity.NUMBER, width, margin=0.0)
        values = [goal, *(value for line in lines for value in line.values)]
        y = tight_axis(values, metric)
        extra = [rule(goal, y, WARNING)]
        if steps.p50 <= answer.final_step:
            right = min(steps.p90, answer.final_step)
            met = ChartLine(
                "", [steps.p10, right], [goal, goal], PALETTE[0], mark={"strokeWidth": 4, "opacity": 0.6}
            )
            middle = ChartLine("", [steps.p50], [goal], PALETTE[0], is_line=False, mark={"size": 90},
                               tips=[f"{answer.target} at {answer.unit} {steps.p50:,.5g}"])  # fmt: skip
            extra += _plain_layers([met, middle], x, y)
        sides = (("right", -2.0), ("left", 6.0 - width))
        places = tuple((anchor, across, down) for anchor, across in sides for down in (-6.0, 15.0))
        label = Wanted(x.high, goal, (str(answer.target),), colour=WARNING, places=places)
        seen = [*zip(log.steps, log.values, strict=True), *zip(fan.steps, fan.p50, strict=True)]
        taken = [
            Box(x.pixel(at) - 4, y.pixel(value) - 3, x.pixel(at) + 4, y.pixel(value) + 3)
            for at, value in seen
        ]
        layers = [*line_layers(lines, x, y), *extra, *label_layer(place_labels([label], x, y, taken), x, y)]
        return figure("Convergence", description, {"width": width, "height": _HEIGHT, "layer": layers})

    held = list(log.values)
    series = (
        Series("p90", [*log.steps, *fan.steps], [*held, *fan.p90]),
        Series("p10", [*log.steps, *fan.steps], [*held, *fan.p10]),
    )
    return Chart(f"{metric}: log, then p10 and p90", description, answer.unit, metric, series, spec=spec)


def tight_axis(values: Sequence[float], title: str) -> ChartAxis:
    """A vertical axis that begins where its values do: what stays near 1 has no need of 0."""
    held = [value for value in values if math.isfinite(value)]
    room = 0.05 * (max(held) - min(held) or 1.0)
    low = min(held) - room
    low = 0.0 if low < 0 <= min(held) else low
    return ChartAxis(title, ChartQuantity.NUMBER, low, max(held) + room, _HEIGHT, is_vertical=True)


def _plain_layers(lines: Sequence[ChartLine], x: ChartAxis, y: ChartAxis) -> list[Spec]:
    """Series in their own colour that no legend names."""
    layers = []
    for line in lines:
        for each in line_layers([line], x, y, has_legend=False):
            each["mark"]["color"] = line.colour
            del each["encoding"]["color"]
            layers.append(each)
    return layers


# ---------------------------------------------------------------- runs and resources


_PANEL = 110
_CYCLES_DRAWN = 2


def _panels(layers: Sequence[list[Spec]], width: int) -> Spec:
    """Charts below each other with the same horizontal axis, which is labelled once."""
    independent = {"color": "independent"}
    return {
        "vconcat": [{"width": width, "height": _PANEL, "layer": each} for each in layers],
        "resolve": {"scale": independent, "legend": independent},
    }


def measured_chart(answer: Measured) -> Chart:
    """Steps and resources of a run while it took steps; bursts are shaded, the prediction is a band."""
    description = "Step times and the use of each resource over the run; bursts are shaded."
    return Chart("Run", description, spec=partial(_run, answer.report, description))


def _run(report: Report, description: str, width: int) -> Spec:
    from foretrain.measuring.watching.report import series_of
    from foretrain.prediction.resources.bursts import within

    run = report.run
    drawn = [(bursts, series_of(bursts, run.series)) for bursts in report.bursts]
    if report.window is not None:
        start, end = report.window
        start, end = start - 0.1 * (end - start), end + 0.05 * (end - start)
    else:
        moments = [moment for each in run.steps for moment in each.ends.tolist()]
        moments += [moment for _, series in drawn for moment in (series.seconds[0], series.seconds[-1])]
        start, end = 0.0, max(moments, default=1.0)

    def across(is_last: bool) -> ChartAxis:
        title = "time since the start, bursts shaded"
        return ChartAxis(title, ChartQuantity.TIME, start, max(end, start + 1e-6), width, has_labels=is_last)

    def inside(seconds: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
        kept = [(at, value) for at, value in zip(seconds, values, strict=True) if start <= at <= end]
        return [at for at, _ in kept], [value for _, value in kept]

    x = across(is_last=not drawn)
    steps = [
        ChartLine(f"worker {each.worker}", *inside(each.ends.tolist(), each.seconds.tolist()),
                  PALETTE[place % len(PALETTE)], is_line=False, mark={"size": 12})
        for place, each in enumerate(run.steps)
    ]  # fmt: skip
    if (made := run.prediction) is not None:
        steps.append(ChartLine("predicted, p10 to p90", [x.low, x.high], [made.p50_seconds] * 2, GREY,
                               low=[made.p10_seconds] * 2, high=[made.p90_seconds] * 2,
                               mark={"strokeWidth": 1}))  # fmt: skip
    panels = [line_layers(steps, x, upright(steps, "step times", ChartQuantity.TIME, _PANEL)) or _empty(x)]
    for place, (bursts, series) in enumerate(drawn, start=1):
        scale, unit = _axis_unit(bursts.resource)
        x = across(is_last=place == len(drawn))
        line = ChartLine(unit, *inside(series.seconds.tolist(), (series.values / scale).tolist()), PALETTE[0],
                         mark={"strokeWidth": 1})  # fmt: skip
        highest = float(within(series, report.window).values.max()) / scale or 1.0
        where = f" of node {bursts.node}" if any(each.node for each in report.bursts) else ""
        name = f"{bursts.resource.value.replace('_', ' ')} {bursts.label}".strip()
        title = f"{name}{where}, {unit}: pattern {bursts.pattern.value}"
        y = axis_over([0.0, highest], title, ChartQuantity.NUMBER, _PANEL, is_vertical=True)
        spans = [(span.start, span.end) for span in bursts.spans]
        panels.append([*_shaded(spans, x), *_clipped(line_layers([line], x, y, has_legend=False))])
    return figure("Run", description, _panels(panels, width))


def _empty(x: ChartAxis) -> list[Spec]:
    return [layer([{"x": x.low}], {"type": "rule", "opacity": 0}, {"x": x.channel("x")})]


def _shaded(spans: Sequence[tuple[float, float]], x: ChartAxis) -> list[Spec]:
    """Spans of time behind the lines, cut at the ends of the axis."""
    rows = [
        {"x": max(begin, x.low), "end": min(end, x.high)}
        for begin, end in spans
        if end > x.low and begin < x.high
    ]
    mark = {"type": "rect", "color": PALETTE[1], "opacity": 0.25, "aria": False}
    return [layer(rows, mark, {"x": x.channel("x"), "x2": {"field": "end"}})] if rows else []


def _clipped(layers: list[Spec]) -> list[Spec]:
    for each in layers:
        each["mark"]["clip"] = True
    return layers


def _axis_unit(resource: Resource) -> tuple[float, str]:
    """What values are divided by for the axis, and the unit there."""
    from foretrain.store.runs import UNITS

    unit = UNITS[resource]
    return {"bytes": (1e9, "GB"), "bytes/s": (1e6, "MB/s"), "share": (0.01, "%")}.get(unit, (1.0, unit))


def consumption_chart(answer: ConsumptionAnswer) -> Chart:
    """Four resources of a worker over two cycles, one line for the step as asked and one for each change."""
    from foretrain.answers import Infeasible

    drawn = [("as asked", answer.consumption)]
    drawn += [
        (each.change, each.answer) for each in answer.what_if if not isinstance(each.answer, Infeasible)
    ]
    return _cycles_chart(drawn, answer.consumption.workload.source.name)


def pair_chart(answer: PairAnswer) -> Chart:
    """Four resources of two jobs, each as if it were alone."""
    names = [f"{job.workload.source.name}, batch {job.batch}" for job in answer.jobs]
    return _cycles_chart([*zip(names, answer.jobs, strict=True)], answer.jobs[0].cluster.name)


def _cycles_chart(drawn: Sequence[tuple[str, Consumption]], of: str) -> Chart:
    title = f"Resources of {of} over {_CYCLES_DRAWN} steps"
    description = f"{', '.join(each.name.replace('_', ' ') for each in drawn[0][1].resources)} over time."

    def spec(width: int) -> Spec:
        resources = drawn[0][1].resources
        span = _CYCLES_DRAWN * max(each.cycle_seconds for _, each in drawn)
        panels = []
        for place, resource in enumerate(resources):
            scale, unit = _axis_unit(resource.resource)
            lines = []
            for number, (name, each) in enumerate(drawn):
                mine = each.resources[place].resource
                series = each.cycle.signals[mine].sampled(mine, each.cycle_seconds / 200)
                kept = series.seconds <= span
                values = (series.values[kept] / scale).tolist()
                colour = PALETTE[number % len(PALETTE)]
                lines.append(
                    ChartLine(name, series.seconds[kept].tolist(), values, colour, mark={"strokeWidth": 1.5})
                )
            x = ChartAxis(
                "time", ChartQuantity.TIME, 0.0, span, width, has_labels=place == len(resources) - 1
            )
            name = resource.name.replace("_", " ")
            y = upright(lines, f"{name}, {unit}", ChartQuantity.NUMBER, _PANEL)
            panels.append(line_layers(lines, x, y, has_legend=len(drawn) > 1 and place == 0))
        return figure(title, description, _panels(panels, width))

    return Chart(title, description, spec=spec)
