"""The time of a schedule: seconds since it began, that never go backwards and survive a restart.

Within one boot of the machine it is the monotonic clock, which no change of the date touches. After a reboot,
or for a time that another machine noted, it is the wall clock, kept within what is possible.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from foretrain.backends.supervise import stamp


@dataclass(frozen=True)
class Origin:
    """The start of a schedule: on the monotonic clock of one boot, and on the wall."""

    boot: str
    monotonic: float
    wall: float


def begin() -> Origin:
    """A schedule that begins now."""
    now = stamp()
    return Origin(str(now["boot"]), float(str(now["monotonic"])), float(str(now["wall"])))


def resume_clock(origin: Origin, last_seconds: float) -> Origin:
    """The same start on the clock of this boot; time goes on from `last_seconds` at least."""
    now = begin()
    if now.boot == origin.boot:
        return origin
    elapsed = max(last_seconds, now.wall - origin.wall)
    return Origin(now.boot, now.monotonic - elapsed, origin.wall)


class ScheduleClock:
    """Seconds since an origin."""

    def __init__(self, origin: Origin, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.origin = origin
        self._monotonic = monotonic
        self._latest = 0.0

    def now(self) -> float:
        """The present, never before what was returned last."""
        self._latest = max(self._latest, self._monotonic() - self.origin.monotonic)
        return self._latest

    def at(self, noted: Mapping[str, Any], earliest: float) -> float:
        """The schedule's time of a stamp, not before `earliest` and not after now."""
        if noted.get("boot") == self.origin.boot:
            seconds = float(noted["monotonic"]) - self.origin.monotonic
        else:
            seconds = float(noted["wall"]) - self.origin.wall
        return min(max(seconds, earliest), self.now())
