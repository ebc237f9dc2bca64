"""The vocabulary of our charts in Vega-Lite: colours, axes with round values, lines, points and labels.

A specification is plain data that any Vega-Lite viewer draws. Colours are those of the light theme; pages
replace them by their style sheet's variables. Expressions occur in axis labels and offsets of texts only, so
that a page with a strict content security policy can draw the same specification with Vega's interpreter.

Vega-Lite places no labels. Domains and sizes are fixed here, so the pixels of a point are known and labels
are placed next to what they name, over nothing else, or not at all. The reader's font is unknown: the width
of a text is bounded by that in the widest of the common fonts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Any

from foretrain.units import DAY, HOUR, MINUTE, YEAR

Spec = dict[str, Any]
Row = Mapping[str, Any]

PALETTE = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#c8b900", "#9aa3ad")
"""Okabe and Ito's colours, distinguishable with any colour vision; the last is grey."""
PAPER, INK, MUTED, LINE, STRONG_LINE = "#ffffff", "#1a1d21", "#5c6570", "#e2e5e9", "#b9c0c8"
ACCENT, WARNING, ON_COLOUR = "#1a5fb4", "#b4441a", "#10151a"
GREY = PALETTE[-1]
FONT_SIZE = 12.0
_SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
_CONFIG: Spec = {
    "font": "Helvetica Neue, Helvetica, Arial, Liberation Sans, DejaVu Sans, sans-serif",
    "background": PAPER,
    "view": {"stroke": None},
    "axis": {
        "domainColor": STRONG_LINE, "gridColor": LINE, "ticks": False, "labelColor": MUTED, "labelLimit": 0,
        "labelFontSize": FONT_SIZE, "labelPadding": 6, "titleColor": MUTED, "titleFontWeight": "normal",
        "titleFontSize": FONT_SIZE, "titlePadding": 8,
    },
    "axisY": {"domain": False, "titleAngle": 0, "titleAlign": "left", "titleX": 0, "titleY": -4},
    "legend": {
        "orient": "top", "direction": "horizontal", "title": None, "labelColor": MUTED, "labelLimit": 0,
        "labelFontSize": FONT_SIZE, "symbolStrokeWidth": 2.5, "offset": 22,
    },
    "title": {
        "anchor": "start", "frame": "group", "color": INK, "fontSize": 15, "fontWeight": 600, "offset": 14,
        "subtitleColor": MUTED, "subtitleFontSize": FONT_SIZE,
    },
    "text": {"color": INK, "fontSize": FONT_SIZE, "aria": False},
    "line": {"strokeWidth": 2.25, "strokeJoin": "round", "aria": False},
    "area": {"aria": False, "line": False},
    "rule": {"aria": False},
    "concat": {"spacing": 22},
}  # fmt: skip


def figure(title: str, description: str, content: Spec) -> Spec:
    """A whole specification around a view, a layer or a concatenation."""
    return {"$schema": _SCHEMA, "title": title, "description": description, **content, "config": _CONFIG}


# ---------------------------------------------------------------- axes


class ChartQuantity(StrEnum):
    """What an axis measures; it decides on round values and on how they are written."""

    TIME = "time"
    MONEY = "money"
    NUMBER = "number"
    COUNT = "count"
    """Whole things, as jobs: no tick stands between two of them."""
    POWERS_OF_TWO = "powers of two"


@dataclass(frozen=True, slots=True)
class ChartAxis:
    """A side of a chart: its title, the values it holds, and its length in pixels.

    Ends of a logarithmic one are above 0. `low` and `high` are exact, without a margin.
    """

    title: str
    quantity: ChartQuantity
    low: float
    high: float
    length: float
    is_log: bool = False
    is_vertical: bool = False
    has_labels: bool = True

    def pixel(self, value: float) -> float:
        """Where a value stands, from the left or from the top."""
        share = (
            math.log(value / self.low) / math.log(self.high / self.low)
            if self.is_log
            else (value - self.low) / (self.high - self.low)
        )
        return self.length * (1 - share if self.is_vertical else share)

    def channel(self, name: str) -> Spec:
        """The encoding of a field along this axis."""
        axis: Spec = {"title": self.title, "grid": True}
        most = max(3, int(self.length / 44)) if self.is_vertical else max(2, int(self.length / 74))
        axis.update(_ticks(self, most))
        if not self.has_labels:
            axis.update(title=None, labels=False)
        scale: Spec = {"domain": [self.low, self.high], "nice": False, "zero": False}
        if self.is_log:
            scale["type"] = "log"
        return {"field": name, "type": "quantitative", "scale": scale, "axis": axis}


def axis_over(
    values: Iterable[float],
    title: str,
    quantity: ChartQuantity,
    length: float,
    *,
    is_log: bool = False,
    is_vertical: bool = False,
    margin: float = 0.06,
) -> ChartAxis:
    """An axis that holds all values; a linear one begins at 0 unless values are negative."""
    held = [value for value in values if math.isfinite(value)] or [1.0]
    low, high = min(held), max(held)
    if is_log:
        if not low > 0:
            raise ValueError(f"a logarithmic axis ({title}) holds no value of {low}")
        if high / low < 1 + _NEAR:
            low, high = low / 1.5, high * 1.5
        room = (high / low) ** margin
        return ChartAxis(
            title, quantity, low / room, high * room, length, is_log=True, is_vertical=is_vertical
        )
    low = min(low, 0.0)
    high = high if high > low else low + 1.0
    return ChartAxis(title, quantity, low, high + margin * (high - low), length, is_vertical=is_vertical)


_NEAR = 1e-9
_UNITS = ((YEAR, "y"), (DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
_TIMES = (
    1, 2, 5, 10, 20, 30,
    *(count * MINUTE for count in (1, 2, 5, 10, 20, 30)),
    *(count * HOUR for count in (1, 2, 3, 6, 12)),
    *(count * DAY for count in (1, 2, 4, 7, 14, 30, 60, 120)),
)  # fmt: skip
_COARSE_TIMES = (
    1, 3, 10, 30, 2 * MINUTE, 10 * MINUTE, 30 * MINUTE, 2 * HOUR, 6 * HOUR, DAY, 4 * DAY, 14 * DAY, 60 * DAY,
)  # fmt: skip
_MAIN_TIMES = (1, 10, MINUTE, 10 * MINUTE, HOUR, 6 * HOUR, DAY, 7 * DAY, 30 * DAY)
_TIME_STEPS = (
    1, 2, 5, 10, 15, 30,
    *(count * MINUTE for count in (1, 2, 5, 10, 15, 30)),
    *(count * HOUR for count in (1, 2, 3, 6, 12)),
    *(count * DAY for count in (1, 2, 5, 10, 20, 50, 100)),
)  # fmt: skip
_LARGE = 1e5
"""From here on numbers are written with k, M or G; on a linear axis that reaches it, all are."""
_NUMBER = "datum.value < {large:g} ? format(datum.value, ',.6~r') : format(datum.value, '.4~s')"
_MONEY = (
    "datum.value >= {large:g} ? format(datum.value, '$.4~s') : "
    "datum.value >= 0.01 && datum.value % 1 ? format(datum.value, '$,.2f') : format(datum.value, '$,.4~r')"
)


def _ticks(axis: ChartAxis, most: int) -> Spec:
    """Round values along an axis and how they are written: those of Vega where they are good enough."""
    if axis.quantity is ChartQuantity.TIME:
        values = ticks(axis, most)
        return {"values": values, "labelExpr": _time_labels(axis, values)}
    text = _MONEY if axis.quantity is ChartQuantity.MONEY else _NUMBER
    label = text.format(large=1 if not axis.is_log and axis.high >= _LARGE else _LARGE)
    if axis.is_log or axis.quantity is ChartQuantity.COUNT:
        return {"values": ticks(axis, most), "labelExpr": label}
    return {"tickCount": most, "labelExpr": label}


def ticks(axis: ChartAxis, most: int) -> list[float]:
    """At most `most` round values: of a logarithmic axis from the finest ladder, else evenly spaced."""
    if axis.is_log:
        for ladder in _ladders(axis):
            inside = [value for value in ladder if axis.low <= value <= axis.high]
            if len(inside) <= most:
                if len(inside) >= 2:
                    return inside
                break
    for step in _steps(axis.high - axis.low, axis.quantity):
        first, last = math.ceil(axis.low / step - _NEAR), math.floor(axis.high / step + _NEAR)
        if last - first < most:
            return [round(count * step, 12) for count in range(first, last + 1)]
    return []


def _ladders(axis: ChartAxis) -> Iterator[list[float]]:
    """Ladders of round values (1, 2, 5, 10 ...; 30 min, 1 h, 6 h, 1 d ...), the finest first."""
    if axis.quantity is ChartQuantity.POWERS_OF_TWO:
        first, last = math.ceil(math.log2(axis.low)), math.floor(math.log2(axis.high))
        powers = [2.0**power for power in range(first, last + 1)]
        yield from (powers[::every] for every in range(1, len(powers) + 1))
        return
    decades = [
        10.0**power for power in range(math.floor(math.log10(axis.low)), math.ceil(math.log10(axis.high)) + 1)
    ]
    if axis.quantity is ChartQuantity.TIME:
        years = [year * YEAR for year in decades if year >= 1]
        below = [part for part in decades if part < 1]
        yield [*(step * part for part in below for step in (1, 2, 5)), *_TIMES, *years]
        yield [*(step * part for part in below for step in (1, 3)), *_COARSE_TIMES, *years]
        main = [*below, *_MAIN_TIMES, *years]
        yield from (main[::every] for every in range(1, len(main) + 1))
        return
    for steps in ((1, 2, 5), (1, 3), (1,)):
        yield [step * power for power in decades for step in steps]
    yield from (decades[::every] for every in range(2, len(decades) + 1))


def _steps(span: float, quantity: ChartQuantity) -> Iterator[float]:
    if quantity is ChartQuantity.TIME and span >= 2:
        yield from _TIME_STEPS
    power = 1.0 if quantity is ChartQuantity.COUNT else 10.0 ** math.floor(math.log10(span) - 2)
    while power <= 100 * span:
        yield from (count * power for count in (1, 2, 5))
        power *= 10


def _time_labels(axis: ChartAxis, values: Sequence[float]) -> str:
    """Evenly spaced times in one unit, those of a ladder each in its own: `30 min`, `6 h`, `2 d`."""

    def counts(value: float, unit: float) -> bool:
        return value == 0 or (value >= unit and abs(value / unit - round(value / unit)) < 1e-6)

    def label(unit: tuple[float, str]) -> str:
        return f"format(datum.value / {unit[0]:g}, ',.5~r') + ' {unit[1]}'"

    gaps = {round((after - before) / axis.high, 9) for before, after in pairwise(values)}
    if not axis.is_log or (len(gaps) == 1 and len(values) > 2):
        unit = next((unit for unit in _UNITS if all(counts(value, unit[0]) for value in values)), _UNITS[-1])
        return label(unit)
    used = [next((unit for unit in _UNITS if counts(value, unit[0])), _UNITS[-1]) for value in values]
    # Ticks rise, and so do their units but for odd ones such as 90 min after 1 h: name those one by one.
    *named, last = list(zip(values, used, strict=True)) or [(1.0, _UNITS[4])]
    return " : ".join(
        [
            *(f"datum.value < {value * (1 + 1e-6):.9g} ? {label(unit)}" for value, unit in named),
            label(last[1]),
        ]
    )


# ---------------------------------------------------------------- marks


@dataclass(frozen=True, slots=True)
class ChartLine:
    """A series: a line, points, or both; `low` and `high` are a band around it.

    `tips` are a sentence for each point, shown by its mark and read to those who do not see it. A line in
    `steps` keeps each value until the next.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str = PALETTE[0]
    tips: Sequence[str] = ()
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    is_dashed: bool = False
    is_steps: bool = False
    is_line: bool = True
    has_marks: bool = False
    mark: Spec = field(default_factory=dict)
    """Properties of the mark other than usual."""

    @property
    def values(self) -> list[float]:
        """All that the vertical axis must hold."""
        return [*self.y, *self.low, *self.high]


def line_layers(
    lines: Sequence[ChartLine], x: ChartAxis, y: ChartAxis, *, has_legend: bool = True
) -> list[Spec]:
    """Layers of some series over the same axes, with one legend: bands, then lines, then points."""
    lines = [line for line in lines if len(line.x)]
    names = list(dict.fromkeys(line.name for line in lines if line.name))
    colours = {line.name: line.colour for line in reversed(lines)}
    is_stroke = any(line.is_line for line in lines)
    symbol = {"symbolType": "stroke" if is_stroke else "circle", "symbolOpacity": 1}
    colour = {
        "field": "series", "type": "nominal",
        "legend": legend(names, x.length, **symbol) if has_legend else None,
        "scale": {"domain": names, "range": [colours[name] for name in names]},
    }  # fmt: skip
    across, up = x.channel("x"), y.channel("y")
    layers = []
    for line in lines:
        if len(line.low):
            rows = [{"x": at, "y": low, "high": high, "series": line.name}
                    for at, low, high in zip(line.x, line.low, line.high, strict=True)]  # fmt: skip
            encoding = {"x": across, "y": up, "y2": {"field": "high"}, "color": colour}
            layers.append(_layer(rows, {"type": "area", "opacity": 0.16}, encoding))
    for line in lines:
        if line.is_line and len(line.x) > 1:
            mark = {"type": "line", **({"strokeDash": [5, 4], "strokeWidth": 1.5} if line.is_dashed else {})}
            mark.update({"interpolate": "step-after"} if line.is_steps else {}, **line.mark)
            encoding = {"x": across, "y": up, "color": colour, "order": {"field": "x"}}
            layers.append(_layer(_rows(line), mark, encoding))
    for line in lines:
        if line.has_marks or not line.is_line:
            mark = {
                "type": "point",
                "filled": True,
                "size": 60,
                "opacity": 1,
                **({} if line.is_line else line.mark),
            }
            layers.append(
                _layer(_rows(line), mark, {"x": across, "y": up, "color": colour, **_tips(line.tips)})
            )
    return layers


def legend(names: Sequence[str], width: float, **properties: Any) -> Spec:
    """A legend in as many columns as fit, with room for the reader's font to be wider than ours."""
    symbol, gap = 24.0, 16.0
    texts = [text_width(name, FONT_SIZE) for name in names]
    gap += 0.2 * max(texts, default=0.0)
    # Texts are bounded by the widest font; in ours they take about five sixths of that.
    widths = [text / 1.2 + symbol + gap for text in texts]
    columns = len(names) if sum(widths) - gap <= width else max(1, int(width // max(widths)))
    limit = {"labelLimit": 0.8 * width - symbol} if max(texts, default=0.0) + symbol > width else {}
    return {"columns": columns, "columnPadding": gap, **limit, **properties}


def _rows(line: ChartLine) -> list[Row]:
    tips = line.tips or [""] * len(line.x)
    return [
        {"x": x, "y": y, "series": line.name, **({"tip": tip} if tip else {})}
        for x, y, tip in zip(line.x, line.y, tips, strict=True)
    ]


def _layer(rows: Sequence[Row], mark: Spec, encoding: Spec) -> Spec:
    return {"data": {"values": list(rows)}, "mark": mark, "encoding": encoding}


def _tips(tips: Sequence[str]) -> Spec:
    return tip_channels() if tips else {}


def tip_channels() -> Spec:
    """The field `tip` of each row as what a mark says when it is pointed at or read out."""
    return {"description": {"field": "tip"}, "tooltip": {"field": "tip", "type": "nominal"}}


def layer(rows: Sequence[Row], mark: Spec, encoding: Spec) -> Spec:
    """A mark for each row; rows with a `tip` say it."""
    return _layer(rows, mark, {**encoding, **(tip_channels() if rows and "tip" in rows[0] else {})})


def rule(value: float, axis: ChartAxis, colour: str = MUTED, dash: Sequence[float] = (5, 4)) -> Spec:
    """A straight line across the chart at a value of an axis."""
    channel = "y" if axis.is_vertical else "x"
    mark = {"type": "rule", "color": colour, "strokeDash": list(dash), "strokeWidth": 1.5}
    return layer([{channel: value}], mark, {channel: axis.channel(channel)})


# ---------------------------------------------------------------- labels


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
    """A point to be labelled: what to write, the best text first, how large its mark is, and its style.

    `places` are anchors and offsets to try, in pixels, the baseline of the text relative to the point;
    without them, those around the mark.
    """

    x: float
    y: float
    texts: tuple[str, ...]
    radius: float = 0.0
    is_bold: bool = False
    colour: str = INK
    places: tuple[tuple[str, float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Placed:
    """A text at a place: its anchor, the offset of its baseline, and the room it takes."""

    wanted: Wanted
    text: str
    anchor: str
    across: float
    down: float
    box: Box


def place_labels(
    wanted: Sequence[Wanted], x: ChartAxis, y: ChartAxis, taken: Iterable[Box] = (), *, above: bool = False
) -> list[Placed | None]:
    """A label for each point, in order of importance; None where no text has room.

    Places below left of a point are tried first, where nothing can be that is better than a point of a front;
    `above` tries those above it first, where a rising line leaves room.
    """
    within = Box(2, -8, x.length + 12, y.length - 2)
    occupied = [*taken, *(mark_box(point, x, y) for point in wanted if point.radius)]
    labels: list[Placed | None] = []
    for point in wanted:
        at = x.pixel(point.x), y.pixel(point.y)
        places = (place for text in point.texts for place in _places(point, text, *at, above))
        placed = next(
            (
                place
                for place in places
                if place.box.inside(within) and not any(place.box.overlaps(box) for box in occupied)
            ),
            None,
        )
        if placed is not None:
            occupied.append(placed.box)
        labels.append(placed)
    return labels


def mark_box(point: Wanted, x: ChartAxis, y: ChartAxis) -> Box:
    """The room of a point's mark."""
    across, down, radius = x.pixel(point.x), y.pixel(point.y), point.radius
    return Box(across - radius, down - radius, across + radius, down + radius)


def label_layer(placed: Iterable[Placed | None], x: ChartAxis, y: ChartAxis) -> list[Spec]:
    """The labels that found a place, over a halo of paper; no layer where there are none."""
    rows = [
        {
            "x": label.wanted.x, "y": label.wanted.y, "text": label.text, "anchor": label.anchor,
            "across": label.across, "down": label.down, "colour": label.wanted.colour,
            "weight": "bold" if label.wanted.is_bold else "normal",
        }
        for label in placed if label is not None
    ]  # fmt: skip
    if not rows:
        return []
    mark = {
        "type": "text", "baseline": "alphabetic", "align": {"expr": "datum.anchor"},
        "dx": {"expr": "datum.across"}, "dy": {"expr": "datum.down"}, "fontWeight": {"expr": "datum.weight"},
    }  # fmt: skip
    encoding = {
        "x": x.channel("x"), "y": y.channel("y"), "text": {"field": "text"},
        "color": {"field": "colour", "type": "nominal", "scale": None},
    }  # fmt: skip
    halo = {**mark, "stroke": PAPER, "strokeWidth": 3, "strokeJoin": "round", "color": PAPER}
    plain = {name: channel for name, channel in encoding.items() if name != "color"}
    return [layer(rows, halo, plain), layer(rows, mark, encoding)]


def _places(point: Wanted, text: str, x: float, y: float, above: bool) -> Iterator[Placed]:
    gap, size = point.radius + 3, FONT_SIZE
    around = (
        ("right", -gap, gap + 0.5 * size),
        ("center", 0.0, gap + size),
        ("right", -gap, 0.35 * size),
        ("left", gap, -gap),
        ("left", gap, 0.35 * size),
        ("left", gap, gap + 0.7 * size),
        ("center", 0.0, -gap - 0.3 * size),
        ("right", -gap, -gap),
        ("left", 0.0, -gap - 1.2 * size),
    )
    width = text_width(text, size, is_bold=point.is_bold)
    for anchor, across, down in point.places or sorted(around, key=lambda place: above and place[2] > 0):
        left = x + across - {"left": 0.0, "center": width / 2, "right": width}[anchor]
        box = Box(left, y + down - 0.85 * size, left + width, y + down + 0.3 * size)
        yield Placed(point, text, anchor, across, down, box)


_NARROW_WIDTH, _MEDIUM_WIDTH, _CAPITAL_WIDTH, _WIDE_WIDTH = 0.42, 0.64, 0.84, 1.0
"""Advance widths as shares of the font's size, which no character of its kind exceeds in DejaVu Sans."""
_NARROW_CHARACTERS = frozenset(" .,:;·'|!()[]/-Iijlftr")
_WIDE_CHARACTERS = frozenset("MWmw%@")
_BOLD = 1.12
"""Width of a bold text relative to a regular one."""


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
