"""How busy others keep this machine while something is measured."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

_WORKING = (0, 1, 2, 7)
"""User, nice, system and stolen time in the first line of /proc/stat. Interrupts are left out: the packets of
those who are watched cause them too."""
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
    counts = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    return sum(int(counts[place]) for place in _WORKING)


def _ticks(process: int) -> int:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0  # it has ended
    return int(fields[_USER]) + int(fields[_SYSTEM])
