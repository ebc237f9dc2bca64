"""From files to an answer: the log, the target, and what else is known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from foretrain.convergence.curves import Direction, parse_target
from foretrain.convergence.forecast import Convergence, ConvergenceRequest, forecast, planned
from foretrain.convergence.history import History
from foretrain.convergence.logs import read_history, read_log
from foretrain.convergence.schedules import parse_schedule
from foretrain.errors import InvalidRequest

_NOTED = 3


@dataclass(frozen=True)
class LogRequest:
    """What `foretrain converge` is asked."""

    log: Path
    target: str
    planned_steps: float | None = None
    schedule: str | None = None
    history: Path | None = None
    direction: str | None = None


def converge(request: LogRequest) -> Convergence:
    """When the run behind a log meets its target."""
    target = parse_target(request.target)
    schedule = parse_schedule(request.schedule) if request.schedule else None
    log = read_log(request.log)
    curve = planned(log.curve(target.metric, _direction(request.direction)), request.planned_steps)
    if schedule is not None and curve.planned_steps is None:
        raise InvalidRequest("`schedule` requires `planned_steps`, the end of the schedule")
    history, notes = None, []
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


def _direction(text: str | None) -> Direction | None:
    if text is None:
        return None
    if text not in tuple(Direction):
        raise InvalidRequest(f"a metric gets better up or down, not {text!r}")
    return Direction(text)
