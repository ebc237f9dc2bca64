"""A stopwatch for machines that are not quite quiet."""

from __future__ import annotations

import resource
import time

import numpy as np

_QUARTILE = 0.25


class Stopwatch:
    """Times the same thing many times over, as `with watch:`.

    One thread is timed by the processor time it used, which others on the machine do not lengthen. Several
    threads wait for each other, so there only the clock on the wall tells; a time during which the system
    took a core away from one of them counts only if there is no other.
    """

    def __init__(self, threads: int) -> None:
        self._clock = time.process_time if threads == 1 else time.perf_counter
        self._undisturbed: list[float] = []
        self._disturbed: list[float] = []

    def __enter__(self) -> None:
        self._switches = _switches()
        self._start = self._clock()

    def __exit__(self, *exception: object) -> None:
        taken = self._clock() - self._start
        (self._undisturbed if _switches() == self._switches else self._disturbed).append(taken)

    @property
    def runs(self) -> int:
        """How often it was used."""
        return len(self._undisturbed) + len(self._disturbed)

    @property
    def seconds(self) -> float:
        """The lower quartile of the undisturbed times, the first left out as warm-up; else the least."""
        settled = self._undisturbed[1:]
        if settled:
            return float(np.quantile(settled, _QUARTILE))
        return min((*self._undisturbed, *self._disturbed))


def _switches() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
