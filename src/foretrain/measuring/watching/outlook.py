"""How far a run is and what is ahead of it: time left, money, and the probability that it meets its target.

    seconds left = (steps in all - steps done) · time of a step
    money        = USD per hour of the machines · hours

`foretrain measure` watches from outside, by the output of a command; the callbacks of training libraries from
inside, by a `TrainingMonitor`. The probability is that of `converge`, from the log that the command writes.
It is computed in a thread of its own, so that the output of the command is passed on without delay.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from foretrain.errors import ForetrainError
from foretrain.measuring.watching.step_hook import step
from foretrain.units import HOUR, format_duration, format_money

_RENEWED_SECONDS = 15.0
"""How often the log is read again."""
_RECENT_STEPS = 101
"""The median of these is the step time: it follows a change, and an evaluation in between does not move
it."""
_WARM_UP_STEPS = 2
"""The first steps allocate, compile and fill the input pipeline."""


@dataclass(frozen=True, kw_only=True)
class RunOutlook:
    """What a run took and what is ahead of it; None is what cannot be known.

    `probability` is that of meeting `target` by the planned steps.
    """

    steps: int
    total_steps: int | None
    seconds: float
    seconds_left: float | None
    usd_so_far: float | None = None
    usd_left: float | None = None
    target: str | None = None
    probability: float | None = None

    @classmethod
    def after(
        cls,
        steps: int,
        total_steps: int | None,
        step_seconds: float | None,
        seconds: float,
        /,
        usd_per_hour: float | None = None,
        **more: Any,
    ) -> Self:
        """The outlook after some steps and seconds; `more` are further fields."""
        left = None
        if total_steps is not None and (step_seconds is not None or steps >= total_steps):
            left = max(0, total_steps - steps) * (step_seconds or 0.0)
        return cls(
            steps=steps,
            total_steps=total_steps,
            seconds=seconds,
            seconds_left=left,
            usd_so_far=_money(seconds, usd_per_hour),
            usd_left=_money(left, usd_per_hour),
            **more,
        )


def _money(seconds: float | None, usd_per_hour: float | None) -> float | None:
    return None if seconds is None or usd_per_hour is None else seconds / HOUR * usd_per_hour


@dataclass(frozen=True, kw_only=True)
class TrainingState(RunOutlook):
    """The outlook from inside of training, with the measured and the predicted time of a step."""

    step_seconds: float | None
    predicted_seconds: float | None

    @property
    def measured_over_predicted(self) -> float | None:
        """The measured step time over the predicted one."""
        if self.step_seconds is None or not self.predicted_seconds:
            return None
        return self.step_seconds / self.predicted_seconds

    @property
    def usd_in_total(self) -> float | None:
        """What the machines will have cost at the last step."""
        if self.usd_so_far is None or self.usd_left is None:
            return None
        return self.usd_so_far + self.usd_left

    def __str__(self) -> str:
        total = "" if self.total_steps is None else f"/{self.total_steps}"
        parts = [f"foretrain: step {self.steps}{total}"]
        if self.step_seconds is not None:
            parts.append(f"measured {format_duration(self.step_seconds)}")
        if self.predicted_seconds is not None:
            ratio = self.measured_over_predicted
            times = "" if ratio is None else f" (measured / predicted = {ratio:.2f})"
            parts.append(f"predicted {format_duration(self.predicted_seconds)}{times}")
        if self.seconds_left is not None:
            parts.append(f"{format_duration(self.seconds_left)} left")
        if self.usd_so_far is not None:
            whole = "" if self.usd_in_total is None else f" of {format_money(self.usd_in_total)}"
            parts.append(f"{format_money(self.usd_so_far)}{whole} spent")
        return ", ".join(parts)


class TrainingMonitor:
    """Counts the steps of a training loop and reports now and then; each step also reaches the step hook."""

    def __init__(
        self,
        *,
        predicted_seconds: float | None,
        usd_per_hour: float | None,
        every_seconds: float,
        show: Callable[[str], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._predicted = predicted_seconds
        self._usd_per_hour = usd_per_hour
        self._every = every_seconds
        self._show = show
        self._clock = clock
        self.start(None)

    def start(self, total_steps: int | None, is_quiet: bool = False) -> None:
        """Training begins. Quiet ones count without reporting: all workers but the first."""
        self._total = total_steps
        self._is_quiet = is_quiet
        self._steps = 0
        self._recent: deque[float] = deque(maxlen=_RECENT_STEPS)
        self._began = self._latest = self._shown = self._clock()

    def step(self) -> None:
        """A step ended."""
        step()
        now = self._clock()
        self._steps += 1
        if self._steps > _WARM_UP_STEPS:
            self._recent.append(now - self._latest)
        self._latest = now
        if now - self._shown >= self._every:
            self._report()

    def finish(self) -> None:
        """Training ended."""
        self._report()

    @property
    def state(self) -> TrainingState:
        """How far training is."""
        measured = statistics.median(self._recent) if self._recent else None
        return TrainingState.after(
            self._steps,
            self._total,
            measured,
            self._clock() - self._began,
            self._usd_per_hour,
            step_seconds=measured,
            predicted_seconds=self._predicted,
        )

    def _report(self) -> None:
        self._shown = self._latest
        if not self._is_quiet:
            self._show(str(self.state))


@dataclass(frozen=True)
class WatchedTarget:
    """A target, the log that shows how near it is, and the planned steps."""

    log: Path
    target: str
    planned_steps: int | None

    def probability(self) -> float | None:
        """The probability of meeting it; None while the log is not there or too short."""
        from foretrain.convergence.forecast import converge
        from foretrain.convergence.options import LogRequest

        request = LogRequest(log=self.log, target=self.target, planned_steps=self.planned_steps)
        try:
            return converge(request).probability
        except (ForetrainError, OSError):
            return None


class TargetMonitor:
    """The latest probability of meeting a target, renewed now and then."""

    def __init__(self, watched: WatchedTarget | None) -> None:
        self._watched = watched
        self._latest: float | None = None
        self._renewed = -_RENEWED_SECONDS
        self._thread: threading.Thread | None = None

    def latest(self) -> float | None:
        """What is known now; starts to renew it if it is old."""
        is_busy = self._thread is not None and self._thread.is_alive()
        if self._watched is not None and not is_busy and time.monotonic() - self._renewed >= _RENEWED_SECONDS:
            self._renewed = time.monotonic()
            self._thread = threading.Thread(target=self._renew, args=(self._watched,), daemon=True)
            self._thread.start()
        return self._latest

    def at_end(self) -> float | None:
        """The probability by the whole log."""
        if self._thread is not None:
            self._thread.join()
        return None if self._watched is None else self._watched.probability()

    def _renew(self, watched: WatchedTarget) -> None:
        self._latest = watched.probability()
