"""Learning-rate schedules, relative to their peak, over the share of the planned run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from foretrain.convergence.curves import Floats
from foretrain.errors import InvalidRequest
from foretrain.ties import ROUNDING

_FORMS = (
    "constant, linear, linear:0.4 (over the last 40 %), linear:0.4:0.1 (to a tenth of the peak), cosine, "
    "cosine:0.1, step:0.5,0.75 or step:0.5,0.75:0.2"
)


class LearningRateSchedule(ABC):
    """A learning rate, as a share of its peak, over the share of the run that is done."""

    name: str

    @abstractmethod
    def rate(self, share: Floats) -> Floats:
        """The rate at each share of the run, 1 at its peak."""


@dataclass(frozen=True)
class Constant(LearningRateSchedule):
    """η = 1."""

    name: str = "constant"

    def rate(self, share: Floats) -> Floats:
        return np.ones_like(share)


@dataclass(frozen=True)
class LinearDecay(LearningRateSchedule):
    """η = 1 until 1 - tail, then straight to `end`; tail 1 is linear decay from the start."""

    tail: float = 1.0
    name: str = "linear"
    end: float = 0.0

    def rate(self, share: Floats) -> Floats:
        return self.end + (1 - self.end) * np.clip((1 - share) / self.tail, 0.0, 1.0)


@dataclass(frozen=True)
class Cosine(LearningRateSchedule):
    """η = end + (1 - end)(1 + cos πu) / 2."""

    name: str = "cosine"
    end: float = 0.0

    def rate(self, share: Floats) -> Floats:
        return self.end + (1 - self.end) * 0.5 * (1 + np.cos(np.pi * np.clip(share, 0.0, 1.0)))


@dataclass(frozen=True)
class StepDecay(LearningRateSchedule):
    """η = factor^(number of drops passed)."""

    at: tuple[float, ...]
    factor: float = 0.1
    name: str = "step"

    def rate(self, share: Floats) -> Floats:
        passed = sum((share >= drop).astype(float) for drop in self.at)
        return np.asarray(self.factor**passed, float)


def parse_schedule(text: str) -> LearningRateSchedule:
    """The schedule written as `cosine[:0.1]`, `linear[:0.4[:0.1]]`, `step:0.5,0.75[:0.1]` or `constant`."""
    name, _, rest = text.strip().lower().partition(":")
    try:
        if name == "step" and rest:
            drops, _, factor = rest.partition(":")
            at = tuple(float(drop) for drop in drops.split(","))
            if all(0 < drop < 1 for drop in at):
                return StepDecay(at, float(factor or 0.1))
        elif name == "linear":
            tail, _, end = rest.partition(":")
            if 0 < float(tail or 1.0) <= 1 and 0 <= float(end or 0.0) < 1:
                return LinearDecay(float(tail or 1.0), end=float(end or 0.0))
        elif name == "cosine" and 0 <= float(rest or 0.0) < 1:
            return Cosine(end=float(rest or 0.0))
        elif name == "constant" and not rest:
            return Constant()
    except ValueError:
        pass
    raise InvalidRequest(f"{text!r} is not a schedule; write {_FORMS}")


def rate_area(schedule: LearningRateSchedule, share: Floats) -> Floats:
    """S1, the area under the rate up to each share of the run: on a fine even grid, then interpolated."""
    grid = np.linspace(0.0, max(1.0, float(np.max(share, initial=0.0))), _CELLS + 1)
    rate = schedule.rate(grid)
    area = np.concatenate([[0.0], np.cumsum(0.5 * (rate[1:] + rate[:-1])) * (grid[1] - grid[0])])
    return np.asarray(np.interp(share, grid, area))


_CELLS = 1000
"""Cells of the numerical integral of a schedule."""


@dataclass(frozen=True)
class LoggedSchedule:
    """A schedule that a log's learning rates follow, and where it ends."""

    schedule: LearningRateSchedule
    planned_steps: float


_LEAST_RATES = 5
_LEAST_FALL = 0.05
"""A smaller change of the learning rate is rounding or warm-up, not a decay."""
_AGREEMENT = 0.02
"""How closely logged rates must follow a line to be one, as a share of the peak."""


def logged_schedule(steps: Floats, rates: Floats, planned_steps: float | None) -> LoggedSchedule | None:
    """The schedule of logged learning rates: linear or cosine decay, or steps where the end is known.

    None where the rate has hardly fallen since its peak, or follows none of these within 2 % of the peak. The
    end of a decay follows from its shape; `planned_steps` has to agree with it if it is given.
    """
    if len(rates) < _LEAST_RATES or not float(rates.max()) > 0:
        return None
    peak = int(np.flatnonzero(rates >= (1 - ROUNDING) * rates.max())[0])
    after, share = steps[peak:], rates[peak:] / float(rates.max())
    if len(after) < _LEAST_RATES or 1 - float(share.min()) < _LEAST_FALL:
        return None
    if planned_steps is not None and len(np.unique(np.round(share, 6))) <= len(share) // 3:
        return _stepwise(after, share, planned_steps)
    for decay in (_linear, _cosine):
        decayed = decay(after, share)
        if decayed is not None and (
            planned_steps is None or abs(decayed.planned_steps / planned_steps - 1) < 5 * _AGREEMENT
        ):
            return decayed if planned_steps is None else LoggedSchedule(decayed.schedule, planned_steps)
    return None


def _linear(steps: Floats, share: Floats) -> LoggedSchedule | None:
    falling = share < 1 - _AGREEMENT / 2
    if falling.sum() < 2:
        return None
    slope, level = np.polyfit(steps[falling], share[falling], 1)
    if slope >= 0:
        return None
    end = float(-level / slope)
    tail = float(-1 / (slope * end))
    schedule = LinearDecay(1.0 if tail > 1 - 5 * _AGREEMENT else tail)
    agrees = np.abs(np.clip(level + slope * steps, 0.0, 1.0) - share).max() < _AGREEMENT
    return LoggedSchedule(schedule, max(end, float(steps[-1]))) if agrees and tail > 0 else None


def _cosine(steps: Floats, share: Floats) -> LoggedSchedule | None:
    inside = (share > _AGREEMENT) & (share < 1 - _AGREEMENT)
    for start in (float(steps[0]), 0.0):  # with a warm-up before the decay, and without
        if not inside.any():
            return None
        angle = np.arccos(2 * share[inside] - 1) / np.pi
        length = float(np.median((steps[inside] - start) / angle))
        curve = Cosine().rate((steps - start) / length)
        if np.abs(curve - share).max() < _AGREEMENT:
            return LoggedSchedule(Cosine(), max(start + length, float(steps[-1])))
    return None


def _stepwise(steps: Floats, share: Floats, planned_steps: float) -> LoggedSchedule | None:
    drops = np.flatnonzero(share[1:] < share[:-1] * (1 - _LEAST_FALL)) + 1
    if not len(drops):
        return None
    factor = float(np.median(share[drops] / share[drops - 1]))
    at = tuple(float(steps[place] / planned_steps) for place in drops)
    return LoggedSchedule(StepDecay(at, factor), planned_steps)
