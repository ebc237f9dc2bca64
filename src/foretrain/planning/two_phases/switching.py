"""The exact best switch from one offer to another, over all ordered pairs of offers at once.

Within a stage of training, time and cost of a pair are linear in the switch step k except for billing, which
rounds each phase up to whole units. The search therefore uses bounds. The linear cost never exceeds the bill;
it leaves of each line (a pair within a stage) only the steps that could beat the best so far, and of most
lines nothing. The remaining steps need only be evaluated

- where the first phase fills its last billing unit: a later switch within that unit is already paid for;
- or where the second phase drops to one unit less: an earlier switch would not be billed more there;
- or at every step, where there are fewer of these.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foretrain.convergence.curves import Floats
from foretrain.jobs.bill import ROUNDING_SLACK, billed_seconds_each

Integers = NDArray[np.int64]

_CANDIDATES_AT_ONCE = 400_000
"""Candidates evaluated as one array; between arrays the best one so far rules out further pairs."""
_TIE_STEPS = 500_000
"""How far around the best step equally good ones are looked for; bounds the array."""
_RELATIVE_SLACK = 1e-12
"""Keeps steps that meet a limit but for rounding; the exact value decides later."""
_BESIDE = np.arange(-1, 2)
"""Roots are rounded: the steps on either side are tried too."""


@dataclass(frozen=True)
class PairLines:
    """One row for each pair and stage; phase 1 takes c₁ + r₁ k seconds, phase 2 takes c₂ - r₂ k."""

    first: Integers
    second: Integers
    low: Integers
    high: Integers
    constant: tuple[Floats, Floats]
    rate: tuple[Floats, Floats]
    usd_per_second: tuple[Floats, Floats]
    granularity: tuple[Floats, Floats]
    minimum: tuple[Floats, Floats]
    extra_usd: Floats

    def seconds_of(self, phase: int, rows: Integers, step: Integers) -> Floats:
        """Time of one phase if the switch comes after `step`."""
        sign = 1 if phase == 0 else -1
        return np.asarray(self.constant[phase][rows] + sign * self.rate[phase][rows] * step, dtype=float)

    def seconds(self, rows: Integers, step: Integers) -> Floats:
        """Time of both phases."""
        return self.seconds_of(0, rows, step) + self.seconds_of(1, rows, step)

    def usd(self, rows: Integers, step: Integers) -> Floats:
        """The bill, exactly."""
        bills = (
            billed_seconds_each(
                self.seconds_of(phase, rows, step), self.granularity[phase][rows], self.minimum[phase][rows]
            )
            * self.usd_per_second[phase][rows]
            for phase in (0, 1)
        )
        return np.asarray(sum(bills, start=self.extra_usd[rows]), dtype=float)

    def linear_seconds(self, rows: Integers) -> tuple[Floats, Floats]:
        """Time as constant and slope."""
        return (
            self.constant[0][rows] + self.constant[1][rows],
            self.rate[0][rows] - self.rate[1][rows],
        )

    def linear_usd(self, rows: Integers) -> tuple[Floats, Floats]:
        """Cost as constant and slope, without rounding up and minimum: never above the bill."""
        price = [self.usd_per_second[phase][rows] for phase in (0, 1)]
        rounding = ROUNDING_SLACK * sum(price[phase] * self.granularity[phase][rows] for phase in (0, 1))
        constant = price[0] * self.constant[0][rows] + price[1] * self.constant[1][rows]
        return (
            constant + self.extra_usd[rows] - rounding,
            price[0] * self.rate[0][rows] - price[1] * self.rate[1][rows],
        )

    def most_above_linear(self, rows: Integers) -> Floats:
        """The bill is at most this much above the linear cost."""
        return np.asarray(
            sum(
                self.usd_per_second[phase][rows]
                * (self.granularity[phase][rows] + self.minimum[phase][rows])
                * (1 + 2 * ROUNDING_SLACK)
                for phase in (0, 1)
            ),
            dtype=float,
        )


@dataclass(frozen=True, slots=True)
class PhaseSwitch:
    """The first and second offer and the step of the switch; `value` is the minimised quantity."""

    first: int
    second: int
    step: int
    value: float


def cheapest_switch(lines: PairLines, deadline: float, below_usd: float = math.inf) -> PhaseSwitch | None:
    """The cheapest switch within the deadline, if it costs less than `below_usd`."""
    return _search(_CheapestInTime(lines, deadline), below_usd)


def fastest_switch(lines: PairLines, budget: float, below_seconds: float = math.inf) -> PhaseSwitch | None:
    """The fastest switch within the budget, if it takes less than `below_seconds`."""
    return _search(_FastestInBudget(lines, budget), below_seconds)


@dataclass(frozen=True)
class _CheapestInTime:
    lines: PairLines
    deadline: float

    def limits(self, best: float) -> tuple[float, float]:
        return self.deadline, best

    def value(self, rows: Integers, step: Integers) -> Floats:
        late = self.lines.seconds(rows, step) > self.deadline
        return np.where(late, math.inf, self.lines.usd(rows, step))

    def second_value(self, rows: Integers, step: Integers) -> Floats:
        return self.lines.seconds(rows, step)

    def bound(self, rows: Integers, low: Integers, high: Integers) -> Floats:
        constant, slope = self.lines.linear_usd(rows)
        return constant + np.minimum(slope * low, slope * high)

    def safe(self, rows: Integers) -> tuple[Integers, Integers]:
        return self.lines.low[rows], self.lines.high[rows]

    def may_fill_first(self, rows: Integers) -> NDArray[np.bool_]:
        return np.ones(len(rows), dtype=bool)

    def may_empty_second(self, rows: Integers) -> NDArray[np.bool_]:
        return np.ones(len(rows), dtype=bool)


@dataclass(frozen=True)
class _FastestInBudget:
    lines: PairLines
    budget: float

    def limits(self, best: float) -> tuple[float, float]:
        return best, self.budget

    def value(self, rows: Integers, step: Integers) -> Floats:
        dear = self.lines.usd(rows, step) > self.budget
        return np.where(dear, math.inf, self.lines.seconds(rows, step))

    def second_value(self, rows: Integers, step: Integers) -> Floats:
        return self.lines.usd(rows, step)

    def bound(self, rows: Integers, low: Integers, high: Integers) -> Floats:
        constant, slope = self.lines.linear_seconds(rows)
        return constant + np.minimum(slope * low, slope * high)

    def safe(self, rows: Integers) -> tuple[Integers, Integers]:
        """The steps that are within the budget whatever the rounding."""
        limit = self.budget - self.lines.most_above_linear(rows)
        return _at_most(
            *self.lines.linear_usd(rows), limit, self.lines.low[rows], self.lines.high[rows], within=True
        )

    def may_fill_first(self, rows: Integers) -> NDArray[np.bool_]:
        """A later switch within the unit must not be slower."""
        return self.lines.linear_seconds(rows)[1] <= 0

    def may_empty_second(self, rows: Integers) -> NDArray[np.bool_]:
        return self.lines.linear_seconds(rows)[1] >= 0


_Aim = _CheapestInTime | _FastestInBudget


def _search(aim: _Aim, below: float) -> PhaseSwitch | None:
    best, switch = below, None
    rows, low, high = _remaining_rows(aim, np.arange(len(aim.lines.low)), best)
    for probe in (*_ends(low, high), *_ends(*aim.safe(rows))):
        best, switch = _improve(aim, rows, np.clip(probe, low, high), best, switch)
    rows, low, high = _remaining_rows(aim, rows, best)
    while len(rows):
        counts = _fewest(aim, rows, low, high)[1]
        taken = max(1, int(np.searchsorted(np.cumsum(counts), _CANDIDATES_AT_ONCE)))
        chunk = slice(0, taken)
        owner, step = _candidates(aim, rows[chunk], low[chunk], high[chunk])
        best, switch = _improve(aim, owner, step, best, switch)
        rows, low, high = _remaining_rows(aim, rows[taken:], best)
    return None if switch is None else _tie_broken(aim, switch)


def _tie_broken(aim: _Aim, switch: PhaseSwitch) -> PhaseSwitch:
    """Of the steps of the pair that are as good, the one of the least time (or cost)."""
    lines = aim.lines
    at = (lines.first == switch.first) & (lines.second == switch.second)
    at &= (lines.low <= switch.step) & (lines.high >= switch.step)
    row = int(np.flatnonzero(at)[0])
    low, high = int(lines.low[row]), int(lines.high[row])
    low, high = max(low, switch.step - _TIE_STEPS), min(high, switch.step + _TIE_STEPS)
    steps = np.arange(low, high + 1)
    rows = np.full(len(steps), row)
    equal = np.flatnonzero(aim.value(rows, steps) <= switch.value)
    if not len(equal):
        return switch
    least = equal[np.argmin(aim.second_value(rows[equal], steps[equal]))]
    return PhaseSwitch(switch.first, switch.second, int(steps[least]), switch.value)


def _improve(
    aim: _Aim, rows: Integers, step: Integers, best: float, switch: PhaseSwitch | None
) -> tuple[float, PhaseSwitch | None]:
    if not len(rows):
        return best, switch
    values = aim.value(rows, step)
    at = int(np.argmin(values))
    if not values[at] < best:
        return best, switch
    value, row = float(values[at]), rows[at]
    return value, PhaseSwitch(int(aim.lines.first[row]), int(aim.lines.second[row]), int(step[at]), value)


def _remaining_rows(aim: _Aim, rows: Integers, best: float) -> tuple[Integers, Integers, Integers]:
    """The rows that may still hold a better switch, most promising first, and their steps."""
    lines = aim.lines
    most_seconds, most_usd = aim.limits(best)
    low, high = _at_most(*lines.linear_seconds(rows), most_seconds, lines.low[rows], lines.high[rows])
    low, high = _at_most(*lines.linear_usd(rows), most_usd, low, high)
    bound = aim.bound(rows, low, high)
    kept = np.flatnonzero((low <= high) & (bound < best))
    kept = kept[np.argsort(bound[kept], kind="stable")]
    return rows[kept], low[kept], high[kept]


def _at_most(
    constant: Floats,
    slope: Floats,
    limit: float | Floats,
    low: Integers,
    high: Integers,
    within: bool = False,
) -> tuple[Integers, Integers]:
    """The steps at which constant + slope · k is at most the limit, one step wider (narrower if `within`).

    Empty where low > high.
    """
    beside = -1 if within else 1
    slack = 0.0 if within else _RELATIVE_SLACK
    limits = np.broadcast_to(np.asarray(limit, float), constant.shape)
    room = np.where(np.isinf(limits), limits, limits + slack * np.abs(np.where(np.isinf(limits), 0, limits)))
    room = room - constant
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.where(slope == 0, np.where(room >= -slack * np.abs(constant), math.inf, -math.inf), room)
        root = np.where(slope == 0, root, room / slope)
    upper = np.where(slope >= 0, np.floor(root) + beside, math.inf)
    lower = np.where(slope < 0, np.ceil(root) - beside, -math.inf)
    return (
        np.clip(lower, low, high + 1.0).astype(np.int64),
        np.clip(upper, low - 1.0, high).astype(np.int64),
    )


def _ends(low: Integers, high: Integers) -> tuple[Integers, ...]:
    """The first and last steps and, as windows are a step too wide, the next two inwards."""
    return (low, low + 1, low + 2, high - 2, high - 1, high)


def _fewest(aim: _Aim, rows: Integers, low: Integers, high: Integers) -> tuple[Integers, Integers]:
    """Which steps to evaluate (0 all, 1 ends of units of the first phase, 2 of the second), and how many."""
    every = (high - low + 1).astype(float)
    counts = [every]
    for phase, allowed in ((0, aim.may_fill_first(rows)), (1, aim.may_empty_second(rows))):
        _, units = _units(aim.lines, phase, rows, low, high)
        counts.append(np.where(allowed, 3 * units + 3, math.inf))
    kind = np.argmin(counts, axis=0)
    return kind.astype(np.int64), np.min(counts, axis=0).astype(np.int64)


def _units(
    lines: PairLines, phase: int, rows: Integers, low: Integers, high: Integers
) -> tuple[Floats, Floats]:
    """The first billing unit that ends between the steps, and how many do (infinite without units)."""
    granularity = lines.granularity[phase][rows]
    least, most = (lines.seconds_of(phase, rows, step) for step in ((low, high), (high, low))[phase])
    with np.errstate(divide="ignore", invalid="ignore"):
        first = np.floor(least / granularity)
        units = np.maximum(0, np.ceil(most / granularity) - first + 1)
    return np.where(granularity > 0, first, 0.0), np.where(granularity > 0, units, math.inf)


def _candidates(aim: _Aim, rows: Integers, low: Integers, high: Integers) -> tuple[Integers, Integers]:
    kind, _ = _fewest(aim, rows, low, high)
    owners, steps = [], []
    for wanted in (0, 1, 2):
        at = np.flatnonzero(kind == wanted)
        if not len(at):
            continue
        chosen, a, b = rows[at], low[at], high[at]
        position, step = (
            _ragged_ranges(a.astype(float), b - a + 1)
            if wanted == 0
            else _unit_ends(aim.lines, wanted, chosen, a, b)
        )
        owners.append(chosen[position])
        steps.append(np.clip(step, a[position], b[position]).astype(np.int64))
    return np.concatenate(owners), np.concatenate(steps)


def _unit_ends(
    lines: PairLines, wanted: int, rows: Integers, low: Integers, high: Integers
) -> tuple[Integers, Floats]:
    phase = wanted - 1
    first, units = _units(lines, phase, rows, low, high)
    position, unit = _ragged_ranges(first, units.astype(np.int64))
    row = rows[position]
    end = (unit + ROUNDING_SLACK / 2) * lines.granularity[phase][row]
    if phase == 0:
        root = np.floor((end - lines.constant[0][row]) / lines.rate[0][row])
    else:
        root = np.ceil((lines.constant[1][row] - end) / lines.rate[1][row])
    edge = (high[:, None] if phase == 0 else low[:, None]) + np.arange(3) * (-1 if phase == 0 else 1)
    return (
        np.concatenate((np.repeat(position, 3), np.repeat(np.arange(len(rows)), 3))),
        np.concatenate(((root[:, None] + _BESIDE).ravel(), edge.ravel().astype(float))),
    )


def _ragged_ranges(first: Floats, counts: Integers) -> tuple[Integers, Floats]:
    """first, first + 1 ... (`counts` of them) for each row: the position of the row, and the number."""
    position = np.repeat(np.arange(len(counts)), counts)
    index = np.arange(len(position)) - np.repeat(np.cumsum(counts) - counts, counts)
    return position, first[position] + index
