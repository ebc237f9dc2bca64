"""How busy others keep this machine while something is measured."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

_IDLE, _WAITING_FOR_DISK, _KINDS = 3, 4, 8
"""Places in the first line of /proc/stat; the kinds after these are counted in them already."""
_USER, _SYSTEM = 11, 12
"""Places in /proc/PID/stat, counted from the state on."""


class OtherLoad:
    """Cores that processes other than these kept busy, from its making on."""

    def __init__(self, processes: Iterable[int]) -> None:
        self._processes = tuple(processes)
        self._start = time.perf_counter()
        self._before = _busy_ticks(), self._own_ticks()

    @property
    def cores(self) -> float:
        """How many, on average until now."""
        elapsed = (time.perf_counter() - self._start) * os.sysconf("SC_CLK_TCK")
        busy, own = self._before
        others = (_busy_ticks() - busy) - (self._own_ticks() - own)
        return max(0.0, others / elapsed) if elapsed > 0 else 0.0

    def _own_ticks(self) -> int:
        return sum(_ticks(process) for process in self._processes)


def _busy_ticks() -> int:
    counts = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1 : 1 + _KINDS]]
    return sum(count for place, count in enumerate(counts) if place not in (_IDLE, _WAITING_FOR_DISK))


def _ticks(process: int) -> int:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0  # it has ended
    return int(fields[_USER]) + int(fields[_SYSTEM])
