"""Training as seen from inside: measured against predicted step time, time left, bill."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from foretrain.measuring.watching.step_hook import step
from foretrain.units import format_duration, format_money

_RECENT_STEPS = 101
_WARM_UP_STEPS = 2
_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True)
class TrainingState:
    """How far training is. Money is None without a price, what lies ahead where the length is unknown."""

    steps: int
    total_steps: int | None
    seconds: float
    step_seconds: float | None
    predicted_seconds: float | None
    usd_per_hour: float | None

    @property
    def measured_over_predicted(self) -> float | None:
        """The measured step time over the predicted one."""
        if self.step_seconds is None or not self.predicted_seconds:
            return None
        return self.step_seconds / self.predicted_seconds

    @property
    def seconds_left(self) -> float | None:
        """The time to the last step."""
        if self.total_steps is None or self.step_seconds is None:
            return None
        return max(0, self.total_steps - self.steps) * self.step_seconds

    @property
    def usd_so_far(self) -> float | None:
        """What the machines have cost since training began."""
        return None if self.usd_per_hour is None else self.usd_per_hour * self.seconds / _SECONDS_PER_HOUR

    @property
    def usd_in_total(self) -> float | None:
        """What they will have cost at the last step."""
        if self.usd_per_hour is None or self.seconds_left is None:
            return None
        return self.usd_per_hour * (self.seconds + self.seconds_left) / _SECONDS_PER_HOUR

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
        return TrainingState(
            steps=self._steps,
            total_steps=self._total,
            seconds=self._clock() - self._began,
            step_seconds=statistics.median(self._recent) if self._recent else None,
            predicted_seconds=self._predicted,
            usd_per_hour=self._usd_per_hour,
        )

    def _report(self) -> None:
        self._shown = self._latest
        if not self._is_quiet:
            self._show(str(self.state))
