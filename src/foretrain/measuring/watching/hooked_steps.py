"""The reading end of `foretrain.step()`: step files of a folder, read while they grow."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foretrain.measuring.watching.step_hook import RECORD
from foretrain.store.runs import WorkerSteps

HOOK_SOURCE = "foretrain.step()"


@dataclass(frozen=True, slots=True)
class StepMark:
    """The end of a step of a worker: seconds since the start, and its input wait (NaN: unknown)."""

    worker: int
    pid: int
    end: float
    input_seconds: float


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

    def new_marks(self) -> Iterator[StepMark]:
        """Steps that ended since the last call."""
        for file in sorted(self._folder.glob("*.steps")):
            rank, _, pid = (int(part) for part in file.stem.split("_"))
            offset = self._offsets.get(file, 0)
            with file.open("rb") as opened:
                opened.seek(offset)
                data = opened.read()
            whole = len(data) - len(data) % RECORD.size
            self._offsets[file] = offset + whole
            worker = rank if rank >= 0 else self._unranked.setdefault(pid, len(self._unranked))
            for end, waited in RECORD.iter_unpack(data[:whole]):
                yield StepMark(worker, pid, end - self._origin, waited)


def steps_of(marks: Mapping[int, list[StepMark]]) -> tuple[WorkerSteps, ...]:
    """Steps of each worker. A step lasts from the end of the one before: the first one has no length."""
    return tuple(_worker_steps(worker, marks[worker]) for worker in sorted(marks) if len(marks[worker]) > 1)


def by_worker(marks: Iterator[StepMark]) -> dict[int, list[StepMark]]:
    """Marks of each worker in order."""
    grouped: dict[int, list[StepMark]] = defaultdict(list)
    for mark in marks:
        grouped[mark.worker].append(mark)
    return grouped


def _worker_steps(worker: int, marks: list[StepMark]) -> WorkerSteps:
    ends = np.array([mark.end for mark in marks])
    waits = np.array([mark.input_seconds for mark in marks[1:]])
    known = not any(map(math.isnan, waits))
    return WorkerSteps(
        worker=worker,
        ends=ends[1:],
        seconds=np.diff(ends),
        input_seconds=waits if known else np.empty(0),
    )
