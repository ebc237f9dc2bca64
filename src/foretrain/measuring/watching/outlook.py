"""What is ahead of a run while it is watched: time left, money, and the probability that it meets its target.

    seconds left = (steps in all - steps done) · time of a step
    money        = USD per hour of the machines · hours

The probability is that of `converge`, from the log that the command writes. It is computed in a thread of its
own, so that the output of the command is passed on without delay.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path

from foretrain.errors import ForetrainError
from foretrain.units import HOUR

_RENEWED_SECONDS = 15.0
"""How often the log is read again."""


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


def outlook(
    steps: int,
    total_steps: int | None,
    step_seconds: float | None,
    seconds: float,
    usd_per_hour: float | None = None,
    target: str | None = None,
    probability: float | None = None,
) -> RunOutlook:
    """The outlook of a run after some steps and seconds."""
    left = None
    if total_steps is not None and (step_seconds is not None or steps >= total_steps):
        left = max(0, total_steps - steps) * (step_seconds or 0.0)
    return RunOutlook(
        steps=steps,
        total_steps=total_steps,
        seconds=seconds,
        seconds_left=left,
        usd_so_far=_money(seconds, usd_per_hour),
        usd_left=_money(left, usd_per_hour),
        target=target,
        probability=probability,
    )


def _money(seconds: float | None, usd_per_hour: float | None) -> float | None:
    return None if seconds is None or usd_per_hour is None else seconds / HOUR * usd_per_hour


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
