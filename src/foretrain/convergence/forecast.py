"""When a run meets its target, and where it ends: curve families, earlier runs and the plan, put together.

A curve extrapolated from before the learning rate falls does not know what the fall will bring. Where the
planned end is known and the gap to the target has closed as far as it had in runs that met theirs, the share
of the plan at which those did is a better estimate than the curve. It does not say whether the plan is good.

`converge` reads the log, the target and what else is known from files; `forecast` answers.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from foretrain.answers import Answer
from foretrain.convergence.curves import (
    LEAST_POINTS,
    Condition,
    Curve,
    Diagnosis,
    Floats,
    MetricDirection,
    Target,
    diagnose,
    parse_target,
    without_spikes,
)
from foretrain.convergence.families import CurveHorizon
from foretrain.convergence.families.laws import PowerLaw
from foretrain.convergence.fitting import fit, lowest_floor
from foretrain.convergence.history import Guesses, History, RunTimeline, guesses, nearest, value_quantiles
from foretrain.convergence.logs import Log, read_history, read_log
from foretrain.convergence.options import LogRequest
from foretrain.convergence.rolling import Ensemble, ensemble, quantiles_of, reaching_steps
from foretrain.convergence.schedules import Constant, LearningRateSchedule, logged_schedule, parse_schedule
from foretrain.encoding import encode
from foretrain.errors import InvalidRequest
from foretrain.estimates import Quantiles
from foretrain.progress import phase

CHANCE = 0.5
"""The plan says when, not whether: 50 % by assumption."""
_LAST = 3
"""The present value is the median of this many points: one outlier does not move it."""


@cache
def _shares() -> dict[str, float]:
    text = files("foretrain.convergence").joinpath("plan_share.toml").read_text(encoding="utf-8")
    return {name: value for name, value in tomllib.loads(text).items() if isinstance(value, float)}


def steps_by_plan(curve: Curve, target: float) -> tuple[Quantiles, float] | None:
    """When the target is met if this run is like those that worked, and how much that counts.

    None if too far off or not planned. It counts in full where the gap has closed as far as it had in those
    runs, and less the farther it is from that, down to nothing at `_FADE` times that gap.

    Only of metrics that rise: fitted on accuracies, while the first values of a loss say little of its gap.
    """
    if curve.direction is MetricDirection.DOWN:
        return None
    if not curve.planned_steps or curve.last_step >= curve.planned_steps:
        return None
    known, sign = _shares(), curve.direction.sign
    now = float(np.median(curve.values[-_LAST:]))
    first_gap, gap = sign * (float(curve.values[0]) - target), sign * (now - target)
    done = curve.last_step / curve.planned_steps
    if first_gap <= 0:
        return None
    allowed = known["gap_left"] * (1 - done) * first_gap
    counts = _ramp(_FADE * allowed - gap, (_FADE - 1) * allowed)
    if counts <= 0:
        return None
    low, middle, high = (known[f"share_{level}"] * curve.planned_steps for level in ("p10", "p50", "p90"))
    soonest = curve.last_step
    return Quantiles(max(low, soonest), max(middle, soonest), max(high, soonest)), counts


def _ramp(value: float, width: float) -> float:
    """0 below 0, 1 from `width` on, straight between: a switch that does not flip by rounding."""
    return min(max(value / width, 0.0), 1.0) if width > 0 else float(value > 0)


_FADE = 1.05
"""Forecasts fade out over 5 % of the gap instead of ending at it: the answer stays continuous in the log."""
_MARGIN = 0.1
"""Range of probabilities over which the plan gives way to the curve, and the curve counts in full."""
_GRID = 240
_FAN = 24
_HORIZON = 20.0
"""Without a planned end, how many times the log is looked ahead."""
_FLAT = 1e-9
"""A log that varies less than this, relatively, is constant but for rounding."""
_PROBES = 4
"""Earlier runs on which the curve is tried; each takes a fit."""
_LEAST_HISTORY = 3
"""Fewer earlier runs have no spread that could be judged."""
_P10_TO_P90 = 2.563
"""Standard deviations between p10 and p90 of a normal distribution."""
_BY_PLAN = "share of the plan at which runs that worked met their target"
_PLAN_RISK = "the log does not show it yet: this rests on the plan, and says when rather than whether"


@dataclass(frozen=True)
class ConvergenceRequest:
    """A log and a target; planned steps, schedule and earlier runs where they are known."""

    curve: Curve
    target: Target
    schedule: LearningRateSchedule | None = None
    history: History | None = None


@dataclass(frozen=True)
class SeenPoints:
    """The log as it was."""

    steps: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Fan:
    """The metric to come at some steps: what a plot draws."""

    steps: tuple[float, ...]
    p10: tuple[float, ...]
    p50: tuple[float, ...]
    p90: tuple[float, ...]


@dataclass(frozen=True)
class Convergence(Answer):
    """The answer. `steps` beyond the horizon are infinite (null in JSON): not met by then.

    `probability` is that of meeting the target by `final_step`: the planned end, or the horizon looked at.
    `condition` says whether the run is improving, diverged, diverging or overfitting.
    """

    reaches: bool
    steps: Quantiles
    method: str
    final_value: Quantiles
    final_step: float
    probability: float
    target: Target
    direction: str
    seen_steps: float
    seen_points: int
    verdict: str
    drivers: tuple[str, ...]
    weights: Mapping[str, float]
    neighbours: Mapping[str, float]
    fan: Fan
    log: SeenPoints
    unit: str = "step"
    epochs: Quantiles | None = None
    condition: Condition = Condition.IMPROVING
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data."""
        encoded: dict[str, Any] = encode(self)
        return encoded

    def summary(self) -> tuple[tuple[str, str], ...]:
        """Target, steps and final value."""
        when = f"{self.steps.p50:,.0f}" if math.isfinite(self.steps.p50) else "not reached"
        value = self.final_value
        return (
            ("target", str(self.target)),
            (f"{self.unit}s", when),
            ("probability", f"{self.probability:.0%} by {self.unit} {self.final_step:,.0f}"),
            ("final value", _format_quantiles(value)),
            ("verdict", self.verdict),
        )

    def at(self, step: float) -> float:
        """The metric at a step: the log as far as it goes, then the middle of the fan."""
        if step <= self.seen_steps:
            return float(np.interp(step, self.log.steps, self.log.values))
        return float(np.interp(step, self.fan.steps, self.fan.p50))


def _format_quantiles(value: Quantiles) -> str:
    if not math.isfinite(value.p50):
        return "no finite forecast"
    return f"{value.p50:.4g} (80 % between {value.p10:.4g} and {value.p90:.4g})"


class _Half(NamedTuple):
    """The forecast from one source (the log, or earlier runs): when, how likely, where it ends."""

    steps: Quantiles
    probability: float
    values: tuple[Quantiles, ...]


def forecast(request: ConvergenceRequest) -> Convergence:
    """When the log's metric meets the target, and where the run ends."""
    raw = request.curve
    check(raw)
    curve = without_spikes(raw)
    target, now = request.target.value, raw.last_step
    end = max(raw.planned_steps or _HORIZON * now, now)
    met = raw.first_sustained(target)
    diagnosis = diagnose(raw)
    steps = np.geomspace(now, end * (1 + 1e-12), _FAN) if end > now else np.array([now, now * (1 + 1e-9)])
    fitted = ensemble(curve, CurveHorizon(now, raw.planned_steps, request.schedule))
    by_curve = _by_curve(fitted, curve, target, end, steps)
    by_history = None if math.isfinite(met) else _by_history(request, curve)
    by_runs = None if by_history is None else _history_half(*by_history, curve, target, steps, end)
    share = (
        1.0
        if by_history is None or by_runs is None
        else _curve_share(by_history[0], by_history[1], curve, target, by_curve)
    )
    both = by_curve if by_runs is None else _mix_quantiles(by_curve, by_runs, share)
    by_plan = None if by_runs is not None or math.isfinite(met) else _by_plan(request, curve, both)
    both, plan = by_plan or (both, 0.0)
    quantiles, chance = _when(met, both, diagnosis)
    reaches = math.isfinite(met) or (chance >= 0.5 and quantiles.p50 <= end)
    weights = {
        item.family.name: float(weight) for item, weight in zip(fitted.fits, fitted.weights, strict=True)
    }
    return Convergence(
        reaches=reaches,
        steps=quantiles,
        method=_BY_PLAN if plan > CHANCE else _method(fitted, by_runs is not None, share, math.isfinite(met)),
        final_value=_final_value(both, diagnosis, curve.direction),
        final_step=end,
        probability=chance,
        target=request.target,
        direction=curve.direction.value,
        seen_steps=now,
        seen_points=len(raw),
        verdict=_verdict(request, met, reaches, chance, end, both, diagnosis),
        drivers=((_PLAN_RISK,) if plan > CHANCE else ()) + _drivers(request, fitted, by_history, share),
        weights=dict(sorted(weights.items(), key=lambda item: -item[1])),
        neighbours=dict(nearest(by_history[0])) if by_history is not None else {},
        fan=Fan(
            tuple(steps.tolist()),
            *(tuple(getattr(item, level) for item in both.values) for level in ("p10", "p50", "p90")),
        ),
        log=SeenPoints(tuple(raw.steps.tolist()), tuple(raw.values.tolist())),
        condition=diagnosis.condition,
    )


def _final_value(both: _Half, diagnosis: Diagnosis, direction: MetricDirection) -> Quantiles:
    """The value at the end; infinitely bad for a run that diverged or is diverging: no curve foresees it."""
    if diagnosis.condition in (Condition.DIVERGED, Condition.DIVERGING):
        worst = direction.sign * math.inf
        return Quantiles(worst, worst, worst)
    return both.values[-1]


def _when(met: float, both: _Half, diagnosis: Diagnosis) -> tuple[Quantiles, float]:
    """Steps to the target and the probability of meeting it; none for a run that moves away from it."""
    if math.isfinite(met):
        return Quantiles(met, met, met), 1.0
    if diagnosis.condition is not Condition.IMPROVING:
        return Quantiles(math.inf, math.inf, math.inf), 0.0
    return both.steps, both.probability


def check(curve: Curve) -> None:
    """Raise `InvalidRequest` for a log that is too short or flat."""
    if len(curve) < LEAST_POINTS:
        raise InvalidRequest(
            f"the log has {len(curve)} points of {curve.metric}; a curve needs at least {LEAST_POINTS}, "
            "spread over the run"
        )
    spread = float(np.ptp(curve.values))
    if spread <= _FLAT * max(1.0, float(np.abs(curve.values).max())):
        raise InvalidRequest(
            f"the log is flat: {curve.metric} stays at {curve.values[0]:g} in all {len(curve)} points, "
            "so nothing says when it will move"
        )


def _by_curve(fitted: Ensemble, curve: Curve, target: float, end: float, steps: Floats) -> _Half:
    grid = np.geomspace(curve.last_step, max(end, curve.last_step * 1.001), _GRID)
    curves, weights = fitted.members(grid)
    reached = reaching_steps(grid, curves, target, curve.direction.sign)
    values, _ = fitted.members(steps)
    return _Half(
        quantiles_of(reached, weights),
        float(weights[np.isfinite(reached)].sum() / weights.sum()),
        tuple(quantiles_of(column, weights) for column in values.T),
    )


def _by_plan(request: ConvergenceRequest, curve: Curve, estimate: _Half) -> tuple[_Half, float] | None:
    """The estimate with what the plan says mixed in where the curve alone would not get there, and its share.

    Only of a rate that falls, or may. The share goes from all to nothing as the curve's own probability goes
    from 50 % to 60 %. Steps are averaged as 1/steps, so that "never" has a place in the average.
    """
    if isinstance(request.schedule, Constant):
        return None
    target = request.target.value
    by_plan = steps_by_plan(curve, target)
    share = _ramp(CHANCE + _MARGIN - estimate.probability, _MARGIN)
    if by_plan is None or share <= 0:
        return None
    share *= by_plan[1]
    levels = ("p10", "p50", "p90")
    steps = Quantiles(
        *sorted(
            1 / (share / getattr(by_plan[0], level) + (1 - share) / getattr(estimate.steps, level))
            for level in levels
        )
    )
    last = estimate.values[-1]
    met = Quantiles(*sorted((last.p10, target, last.p90)))
    end = Quantiles(
        *sorted(share * getattr(met, level) + (1 - share) * getattr(last, level) for level in levels)
    )
    chance = share * CHANCE + (1 - share) * estimate.probability
    return _Half(steps, chance, (*estimate.values[:-1], end)), share


def _by_history(request: ConvergenceRequest, curve: Curve) -> tuple[Guesses, RunTimeline] | None:
    history = request.history
    if history is None or len(history.curves) < _LEAST_HISTORY:
        return None
    timeline = RunTimeline(history, history.is_planned and bool(curve.planned_steps))
    try:
        return guesses(curve, timeline, request.target.value), timeline
    except InvalidRequest:
        return None


def _history_half(
    guessed: Guesses, timeline: RunTimeline, curve: Curve, target: float, steps: Floats, end: float
) -> _Half | None:
    values = value_quantiles(curve, timeline, steps)
    quantiles = guessed.quantiles(curve.last_step)
    if not math.isfinite(quantiles.p50):
        return None
    inside = (guessed.steps <= end * (1 + 1e-9)) & np.isfinite(guessed.steps)
    chance = float(guessed.weights[inside].sum()) if curve.planned_steps else guessed.reaching
    if values is None:
        return _Half(quantiles, chance, ())
    lowest = lowest_floor(curve)
    bounds = (lowest, math.inf) if curve.direction is MetricDirection.DOWN else (-math.inf, -lowest)
    ends = tuple(Quantiles(*np.clip((v.p10, v.p50, v.p90), *bounds).tolist()) for v in values)
    if curve.planned_steps:  # runs that met it, and shapes that lead there, each say how likely it is
        chance = 0.5 * (chance + _chance_at(ends[-1], target, curve.direction.sign))
    return _Half(quantiles, chance, ends)


def _chance_at(value: Quantiles, target: float, sign: float) -> float:
    """The chance that a value of these quantiles is at least as good as the target, taken as normal."""
    spread = max((value.p90 - value.p10) / _P10_TO_P90, 1e-12)
    return 0.5 * (1 + math.erf(sign * (target - value.p50) / spread / math.sqrt(2)))


def _curve_share(
    guessed: Guesses, timeline: RunTimeline, curve: Curve, target: float, by_curve: _Half
) -> float:
    """How much the curve alone counts: by the errors of both on the nearest earlier runs, cut there too.

    Nothing where the curve would not get there by itself.
    """
    likely = _ramp(by_curve.probability - CHANCE, _MARGIN)
    if likely <= 0:
        return 0.0
    ranked = nearest(guessed, _PROBES + 1)
    beyond = ranked[_PROBES][1] if len(ranked) > _PROBES else 0.0
    counted = {name: weight - (1 - 1e-6) * beyond for name, weight in ranked[:_PROBES]}
    errors, weights = [], []
    for index, other in enumerate(timeline.curves):
        true = other.first_reaching(target)
        unit = timeline.units[index] / (curve.planned_steps or 1.0 if timeline.relative else 1.0)
        early = other.until(curve.last_step * unit)
        if other.name in counted and math.isfinite(true) and len(early) >= LEAST_POINTS:
            grid = np.geomspace(early.last_step, _HORIZON * early.last_step, _GRID)
            values = fit(without_spikes(early), PowerLaw()).values(grid)[None, :]
            reached = float(reaching_steps(grid, values, target, curve.direction.sign)[0])
            errors.append(abs(math.log(min(reached, grid[-1]) / true)))
            weights.append(max(counted[other.name], 1e-12))
    if not errors:
        return 0.0
    curve_error, history_error = float(np.average(errors, weights=weights)), max(guessed.error, 1e-3)
    return likely * history_error**2 / (history_error**2 + max(curve_error, 1e-3) ** 2)


def _mix_quantiles(curve: _Half, runs: _Half, share: float) -> _Half:
    """Quantiles averaged level by level (Vincent's way): steps in logarithms, values as they are.

    A level that the curve reaches in few of its members counts less: beyond its probability it is infinite.
    """

    def steps(one: float, other: float, level: float) -> float:
        counts = share * _ramp(curve.probability - level, _MARGIN)
        if counts == 0.0 or not math.isfinite(one) or not math.isfinite(other):
            return other
        return math.exp(counts * math.log(one) + (1 - counts) * math.log(other))

    levels = {"p10": 0.1, "p50": 0.5, "p90": 0.9}
    quantiles = sorted(
        steps(getattr(curve.steps, name), getattr(runs.steps, name), level) for name, level in levels.items()
    )
    values = (
        tuple(
            Quantiles(
                *sorted(
                    share * getattr(a, level) + (1 - share) * getattr(b, level)
                    for level in ("p10", "p50", "p90")
                )
            )
            for a, b in zip(curve.values, runs.values, strict=True)
        )
        if runs.values
        else curve.values
    )
    return _Half(Quantiles(*quantiles), share * curve.probability + (1 - share) * runs.probability, values)


def _method(fitted: Ensemble, with_history: bool, share: float, met: bool) -> str:
    if met:
        return "already reached in the log"
    families = f"{fitted.chief.family.name} and {len(fitted.fits) - 1} other families by out-of-sample error"
    if not with_history:
        return families
    return f"earlier runs ({1 - share:.0%}) and {families} ({share:.0%})"


def _verdict(
    request: ConvergenceRequest,
    met: float,
    reaches: bool,
    chance: float,
    end: float,
    both: _Half,
    diagnosis: Diagnosis,
) -> str:
    target = request.target
    if math.isfinite(met):
        later = f"; {diagnosis.sentence}" if diagnosis.sentence else ""
        return f"{target} was reached at step {met:,.0f}{later}"
    if diagnosis.sentence:
        return f"{target} will not be reached: {diagnosis.sentence}"
    by = f"the planned end, step {end:,.0f}" if request.curve.planned_steps else f"step {end:,.0f}"
    if not reaches:
        last = both.values[-1]
        return (
            f"{target} is unlikely by {by} ({chance:.0%} chance): predicted {target.metric} there "
            f"{last.p50:.4g} ({last.p10:.4g} to {last.p90:.4g})"
        )
    return f"{chance:.0%} chance of {target} by {by}; most likely at step {both.steps.p50:,.0f}"


def _drivers(
    request: ConvergenceRequest,
    fitted: Ensemble,
    by_history: tuple[Guesses, RunTimeline] | None,
    share: float,
) -> tuple[str, ...]:
    """What makes the interval wide, the largest first."""
    curve = request.curve
    last = fitted.now * 2
    values = np.array([item.values(np.array([last]))[0] for item in fitted.fits])
    counted = fitted.weights > 0.02
    apart = float(np.ptp(values[counted])) if counted.sum() > 1 else 0.0
    size = abs(float(curve.values[-1])) if fitted.relative else 1.0
    growth, noise = size * fitted.growth * math.log(2), size * fitted.noise
    sizes = {
        f"curve families differ by {apart:.3g} at double the horizon": apart / 2,
        f"back-tested on this log, curves missed by {growth:.3g} at double the horizon": growth,
        f"noise of the log: {noise:.3g}": noise,
    }
    drivers = [text for text, size in sorted(sizes.items(), key=lambda item: -item[1]) if size > 0]
    if by_history is not None and share < 0.5:
        spread = f"earlier runs predict each other within {by_history[0].error:.1%}"
        drivers.insert(0, spread)
    if curve.planned_steps is None:
        drivers.append("planned end unknown (`planned_steps`): learning-rate decay is not modelled")
    elif request.schedule is None and by_history is None:
        drivers.append("learning-rate schedule unknown (`schedule`): the gain from its decay is not modelled")
    return tuple(drivers)


def with_planned_end(curve: Curve, steps: float | None) -> Curve:
    """The curve with its planned end set."""
    if steps is None:
        return curve
    if not steps >= curve.last_step:
        raise InvalidRequest(
            f"{steps:g} planned steps, but the log goes to step {curve.last_step:g}; give at least that"
        )
    return replace(curve, planned_steps=float(steps))


# ---------------------------------------------------------------- from files to an answer


_NOTED = 3
_PERCENT = 100.0


def converge(request: LogRequest) -> Convergence:
    """When the run behind a log meets its target."""
    target = parse_target(request.target)
    schedule = parse_schedule(request.schedule) if request.schedule else None
    with phase(f"reading {request.log.name}"):
        log = read_log(request.log)
    curve = with_planned_end(log.curve(target.metric, _direction(request.direction)), request.planned_steps)
    check_scale(curve, target)
    history, notes = None, [f"read {log.file}"] if request.log.is_dir() else []
    if schedule is None:
        schedule, curve, note = _by_rates(log, curve)
        notes += note
    if schedule is not None and curve.planned_steps is None:
        raise InvalidRequest("`schedule` requires `planned_steps`, the end of the schedule")
    if request.history is not None:
        with phase(f"reading earlier logs of {request.history.name}"):
            curves, left_out = read_history(request.history, target.metric, curve.direction)
        others = tuple(
            item for item in curves if (request.history / item.name).resolve() != request.log.resolve()
        )
        history = History(others)
        notes += [f"left out of the history: {reason}" for reason in left_out[:_NOTED]]
        if len(left_out) > _NOTED:
            notes.append(f"and {len(left_out) - _NOTED} more files left out")
    with phase("fitting curves"):
        answer = forecast(ConvergenceRequest(curve, target, schedule, history))
    if history is not None and not answer.neighbours:
        notes.append(
            f"the history ({len(history.curves)} runs) says nothing: at least three runs that had not met "
            "the target by now are needed"
        )
    per_epoch = log.steps_per_epoch
    epochs = answer.steps.scale(1 / per_epoch) if per_epoch else answer.steps if log.unit == "epoch" else None
    return replace(answer, unit=log.unit, epochs=epochs, notes=tuple(notes))


def check_scale(curve: Curve, target: Target) -> None:
    """Refuse a target in percent of a metric that is a fraction, and the other way round."""
    if curve.direction is not MetricDirection.UP or not len(curve):
        return
    low, high = float(curve.values.min()), float(curve.values.max())
    if low >= 0 and high <= 1 < target.value <= _PERCENT:
        other, kinds = target.value / _PERCENT, "fractions, the target a percentage"
    elif 1 < high <= _PERCENT and 0 < target.value <= 1 and low >= 1:
        other, kinds = target.value * _PERCENT, "percentages, the target a fraction"
    else:
        return
    raise InvalidRequest(
        f"{target} does not fit the log: {curve.metric} goes from {low:.4g} to {high:.4g}. The log looks "
        f"like {kinds}; did you mean {target.metric}={other:g}?"
    )


def _by_rates(log: Log, curve: Curve) -> tuple[LearningRateSchedule | None, Curve, list[str]]:
    """The schedule that logged learning rates follow, and the curve with the end of that schedule."""
    logged = log.learning_rates
    read = None if logged is None else logged_schedule(*logged, curve.planned_steps)
    if read is None:
        return None, curve, []
    end = max(read.planned_steps, curve.last_step)
    where = f"{read.schedule.name}, to {log.unit} {end:,.0f}"
    note = f"the schedule is read from the logged learning rates: {where}"
    return read.schedule, with_planned_end(curve, end), [note]


def _direction(text: str | None) -> MetricDirection | None:
    if text is None:
        return None
    if text not in tuple(MetricDirection):
        raise InvalidRequest(f"a metric gets better up or down, not {text!r}")
    return MetricDirection(text)
