"""From files to an answer: the log, the target, and what else is known."""

from __future__ import annotations

from dataclasses import replace

from foretrain.convergence.curves import Curve, MetricDirection, Target, parse_target
from foretrain.convergence.forecast import Convergence, ConvergenceRequest, forecast, with_planned_end
from foretrain.convergence.history import History
from foretrain.convergence.logs import Log, read_history, read_log
from foretrain.convergence.options import LogRequest
from foretrain.convergence.schedules import LearningRateSchedule, logged_schedule, parse_schedule
from foretrain.errors import InvalidRequest

_NOTED = 3
_PERCENT = 100.0


def converge(request: LogRequest) -> Convergence:
    """When the run behind a log meets its target."""
    target = parse_target(request.target)
    schedule = parse_schedule(request.schedule) if request.schedule else None
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
        curves, left_out = read_history(request.history, target.metric, curve.direction)
        others = tuple(
            item for item in curves if (request.history / item.name).resolve() != request.log.resolve()
        )
        history = History(others)
        notes += [f"left out of the history: {reason}" for reason in left_out[:_NOTED]]
        if len(left_out) > _NOTED:
            notes.append(f"and {len(left_out) - _NOTED} more files left out")
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
