"""The reading end of `foretrain.step()`: step files of a folder, read while they grow."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from foretrain.measuring.watching.step_hook import RECORD
from foretrain.store.runs import Floats, WorkerSteps

HOOK_SOURCE = "foretrain.step()"
_FIELDS = np.dtype([("end", "<f8"), ("waited", "<f8")])


@dataclass(frozen=True, eq=False)
class StepMarks:
    """Steps of a process that ended since the last look: when, and how long they waited (NaN: unknown)."""

    worker: int
    is_ranked: bool
    pid: int
    ends: Floats
    waits: Floats


@dataclass
class MarkLog:
    """All marks of a worker."""

    ends: array[float] = field(default_factory=lambda: array("d"))
    waits: array[float] = field(default_factory=lambda: array("d"))

    def add(self, ends: Floats, waits: Floats) -> None:
        """Append the marks of later steps."""
        self.ends.extend(ends.tolist())
        self.waits.extend(waits.tolist())


class HookReader:
    """Reads what was appended to the step files of a folder since the last look.

    `origin` is the instant of `time.monotonic()` that counts as second 0. A process without rank is worker 0,
    further ones are numbered in the order in which they are seen.
    """

    def __init__(self, folder: Path, origin: float) -> None:
        self._folder = folder
        self._origin = origin
        self._offsets: dict[Path, int] = {}
        self._unranked: dict[int, int] = {}

    def new_marks(self) -> list[StepMarks]:
        """Steps that ended since the last call."""
        marks = []
        for file in sorted(self._folder.glob("*.steps")):
            offset = self._offsets.get(file, 0)
            with file.open("rb") as opened:
                opened.seek(offset)
                data = opened.read()
            whole = len(data) - len(data) % RECORD.size
            if not whole:
                continue
            self._offsets[file] = offset + whole
            rank, _, pid = (int(part) for part in file.stem.split("_"))
            worker = rank if rank >= 0 else self._unranked.setdefault(pid, len(self._unranked))
            records = np.frombuffer(data[:whole], _FIELDS)
            ends, waits = records["end"] - self._origin, records["waited"].copy()
            marks.append(StepMarks(worker, rank >= 0, pid, ends, waits))
        return marks


def hooked_steps(logs: dict[int, MarkLog]) -> tuple[WorkerSteps, ...]:
    """Steps of each worker. A step lasts from the end of the one before: the first one has no length."""
    return tuple(_worker_steps(worker, logs[worker]) for worker in sorted(logs) if len(logs[worker].ends) > 1)


def _worker_steps(worker: int, log: MarkLog) -> WorkerSteps:
    ends, waits = np.array(log.ends), np.array(log.waits)[1:]
    return WorkerSteps(
        worker=worker,
        ends=ends[1:],
        seconds=np.diff(ends),
        input_seconds=np.empty(0) if np.isnan(waits).any() else waits,
    )
