"""Timing on machines that are not quite quiet: a stopwatch, and how busy other processes keep the machine."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from foretrain.errors import BackendFailed

_QUARTILE = 0.25
"""Disturbances only lengthen times: the lower quartile leaves them out, and unlike the least it is no single
case."""
_WORKING = (0, 1, 2, 7)
"""User, nice, system and stolen time in the first line of /proc/stat. Interrupts are left out: the packets of
those who are watched cause them too."""
_USER, _SYSTEM = 11, 12
"""Places in /proc/PID/stat, counted from the state on."""
DISTURBING_CORES = 0.15
"""Cores of others beyond the idle ones from which on times are longer; the `real` suite measures below it."""
_GLANCE_SECONDS = 0.5
"""Shorter looks at the load see single ticks of the kernel's clock."""
_PATIENCE_SECONDS = 10.0
"""How long to wait for a quiet moment before the busy machine is an error."""


class Stopwatch:
    """Times the same thing many times over, as `with watch:`.

    One thread is timed by the processor time it used, which others on the machine do not lengthen. Several
    threads wait for each other, so their wall time is taken; a time during which the system
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
        warm = self._undisturbed[1:]
        if warm:
            return float(np.quantile(warm, _QUARTILE))
        return min((*self._undisturbed, *self._disturbed))


def _switches() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


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


class QuietWatch:
    """Whether other processes leave as many cores idle as `threads` of this process need."""

    def __init__(self, threads: int) -> None:
        self.threads, self.cores = threads, os.cpu_count() or 1
        self._look()

    def _look(self) -> None:
        self._since, self._others = time.perf_counter(), OtherLoad((os.getpid(),))

    def disturbing_cores(self) -> float | None:
        """Cores that others used since the last answer if too few stayed idle, else 0; None: too early."""
        if time.perf_counter() - self._since < _GLANCE_SECONDS:
            return None
        others = self._others.cores
        self._look()
        return others if others + self.threads > self.cores + DISTURBING_CORES else 0.0

    def wait(self, patience: float = _PATIENCE_SECONDS) -> None:
        """Return at the first quiet moment; raise `BackendFailed` if none comes."""
        deadline = time.perf_counter() + patience
        while True:
            time.sleep(_GLANCE_SECONDS)
            others = self.disturbing_cores()
            if not others:
                return
            if time.perf_counter() > deadline:
                raise BackendFailed(self.refusal(others))

    def refusal(self, others: float) -> str:
        """Why nothing can be timed now, and what would work."""
        idle = int(self.cores - others + DISTURBING_CORES)
        fewer = f", or time fewer threads: OMP_NUM_THREADS={idle} foretrain calibrate --here" if idle else ""
        return (
            f"this machine is busy: other processes use {others:.1f} of its {self.cores} cores, and "
            f"{self.threads} threads are to be timed. Nothing was changed. Stop them and calibrate "
            f"again{fewer}"
        )


def busy_cpu_seconds() -> float:
    """Processor time that all processes of this machine have used since it started."""
    return _busy_ticks() / os.sysconf("SC_CLK_TCK")


def _busy_ticks() -> int:
    counts = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    return sum(int(counts[place]) for place in _WORKING)


def _ticks(process: int) -> int:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0  # it has ended
    return int(fields[_USER]) + int(fields[_SYSTEM])
