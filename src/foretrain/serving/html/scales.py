"""Axes: from values to pixels, and where ticks stand, in the units people use.

A logarithmic axis takes its ticks from ladders of round values (1, 2, 5, 10 ...; for times 1, 2, 5, 10, 30
seconds, minutes, 1, 3, 6, 12 hours, days), the finest that is not too many; a range too short for two of them
gets evenly spaced ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from foretrain.units import DAY, HOUR, MINUTE, YEAR

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
_NEAR = 1e-9


class Quantity(StrEnum):
    """What an axis measures; it decides on round values and on how they are written."""

    TIME = "time"
    MONEY = "money"
    NUMBER = "number"
    POWERS_OF_TWO = "powers of two"


@dataclass(frozen=True, slots=True)
class Axis:
    """What stands along one side of a chart. `is_log` wants values above 0."""

    label: str
    quantity: Quantity
    is_log: bool = True


@dataclass(frozen=True, slots=True)
class Scale:
    """The values from `low` to `high` on the pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool

    def pixel(self, value: float) -> float:
        """Where a value stands; values beyond the ends stand beyond them."""
        share = (
            math.log(value / self.low) / math.log(self.high / self.low)
            if self.is_log
            else (value - self.low) / (self.high - self.low)
        )
        return self.start + share * (self.end - self.start)

    def holds(self, value: float) -> bool:
        """Whether a value stands between the ends."""
        return self.low <= value <= self.high


def scale_over(values: Sequence[float], axis: Axis, start: float, end: float, margin: float = 0.06) -> Scale:
    """A scale that holds all values, with a margin at both ends as a share of it.

    A linear one begins at 0 unless values are negative; a single value gets room on both sides.
    """
    low, high = min(values), max(values)
    if not axis.is_log:
        low = min(low, 0.0)
        high = high if high > low else low + 1.0
        return Scale(low, high + margin * (high - low), start, end, is_log=False)
    if not low > 0:
        raise ValueError(f"a logarithmic axis ({axis.label}) holds no value of {low}")
    if high / low < 1 + _NEAR:
        low, high = low / 1.5, high * 1.5
    room = (high / low) ** margin
    return Scale(low / room, high * room, start, end, is_log=True)


@dataclass(frozen=True, slots=True)
class Tick:
    """A round value, and how it is written."""

    value: float
    text: str


def ticks(scale: Scale, quantity: Quantity, most: int) -> list[Tick]:
    """At most `most` round values on the scale, from a ladder or evenly spaced."""
    if scale.is_log:
        for ladder in _ladders(scale, quantity):
            inside = [value for value in ladder if scale.holds(value)]
            if len(inside) <= most:
                if len(inside) >= 2:
                    return [Tick(value, tick_text(value, quantity)) for value in inside]
                break
    even = _even(scale.low, scale.high, quantity, most)
    if quantity is Quantity.TIME:
        seconds, name = next((unit for unit in _UNITS if _counts(even, unit[0])), _UNITS[-1])
        return [Tick(value, f"{value / seconds:,.5g} {name}") for value in even]
    return [Tick(value, tick_text(value, quantity)) for value in even]


def tick_text(value: float, quantity: Quantity) -> str:
    """A round value as it stands on an axis: `30 min`, `6 h`, `2 d`, `$1,000`, `$0.50`, `20k`."""
    if quantity is Quantity.TIME:
        return _time_text(value)
    if quantity is Quantity.MONEY:
        return f"${_number(value)}" if _is_whole(value) else f"${_at_least_cents(value)}"
    return _number(value)


def _ladders(scale: Scale, quantity: Quantity) -> Iterator[list[float]]:
    """Ladders of round values over the scale, the finest first."""
    if quantity is Quantity.POWERS_OF_TWO:
        first, last = math.ceil(math.log2(scale.low)), math.floor(math.log2(scale.high))
        powers = [2.0**power for power in range(first, last + 1)]
        yield from (powers[::every] for every in range(1, len(powers) + 1))
        return
    if quantity is Quantity.TIME:
        decades = _decades(scale)
        years = [year * YEAR for year in decades if year >= 1]
        below = [part for part in decades if part < 1]
        yield [*below, *_TIMES, *years]
        yield [*below, *_COARSE_TIMES, *years]
        main = [*below, *_MAIN_TIMES, *years]
        yield from (main[::every] for every in range(1, len(main) + 1))
        return
    powers_of_ten = _decades(scale)
    for steps in ((1, 2, 5), (1, 3), (1,)):
        yield [step * power for power in powers_of_ten for step in steps]
    yield from (powers_of_ten[::every] for every in range(2, len(powers_of_ten) + 1))


def _counts(values: Sequence[float], unit: float) -> bool:
    """Whether all are whole numbers of a unit."""
    return all(value == 0 or (value >= unit and _is_whole(value / unit)) for value in values)


def _decades(scale: Scale) -> list[float]:
    first, last = math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high))
    return [10.0**power for power in range(first, last + 1)]


def _even(low: float, high: float, quantity: Quantity, most: int) -> list[float]:
    """Multiples of the smallest round step that gives at most `most` of them."""
    for step in _steps(high - low, quantity):
        first, last = math.ceil(low / step - _NEAR), math.floor(high / step + _NEAR)
        if last - first < most:
            return [round(count * step, 12) for count in range(first, last + 1)]
    return []


def _steps(span: float, quantity: Quantity) -> Iterator[float]:
    if quantity is Quantity.TIME and span >= 2:
        yield from _TIME_STEPS
    power = 10.0 ** math.floor(math.log10(span) - 2)
    while power <= 100 * span:
        yield from (count * power for count in (1, 2, 5))
        power *= 10


def _time_text(seconds: float) -> str:
    for scale, unit in _UNITS:
        if seconds >= scale and _is_whole(seconds / scale):
            return f"{seconds / scale:,.0f} {unit}"
    return f"{seconds:.4g} s"


def _number(value: float) -> str:
    for scale, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= max(scale, 1e4):
            return f"{value / scale:.4g}{letter}"
    return f"{value:,.0f}" if _is_whole(value) else f"{value:.4g}"


def _at_least_cents(value: float) -> str:
    cents = f"{value:.2f}"
    return cents if abs(float(cents) - value) < _NEAR else f"{value:.4g}"


def _is_whole(value: float) -> bool:
    return abs(value - round(value)) < _NEAR * max(1.0, abs(value))
