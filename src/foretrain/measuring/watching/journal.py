"""What is gathered of a run, written to a file as it goes: a killed foretrain loses a second, not a run.

A journal has one JSON object per line: the head of the run, then pieces of steps and series, then how the run
ended. Several nodes of one job write their journals to one folder, from which they are merged.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import numpy as np

from foretrain.encoding import encode
from foretrain.errors import BackendFailed, InvalidData
from foretrain.facts.user_data import user_data_dir
from foretrain.measuring.watching.step_files import HOOK_SOURCE, MarkLog, StepMarks, hooked_steps
from foretrain.persisted import restore
from foretrain.store.runs import (
    Environment,
    Floats,
    PredictionMade,
    Resource,
    ResourceSeries,
    Status,
    WorkerSteps,
)

_SUFFIX = ".jsonl"


@dataclass(frozen=True, kw_only=True)
class RunHead:
    """What is known of a run when it starts. `pid` is the process of foretrain that watches it."""

    id: str
    started_at: datetime
    command: tuple[str, ...]
    setting: Mapping[str, Any]
    environment: Environment
    pid: int
    node: int = 0
    nodes: int = 1
    prediction: PredictionMade | None = None


@dataclass(frozen=True, kw_only=True)
class RunEnd:
    """How a run ended."""

    seconds: float
    status: Status
    exit_code: int | None
    message: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class JournalRecord:
    """What was gathered of a run on one node; `end` is None where foretrain itself did not see the end."""

    head: RunHead
    end: RunEnd | None
    source: str
    steps: tuple[WorkerSteps, ...]
    series: tuple[ResourceSeries, ...]


class Journal:
    """The file of a run that is being watched. A disk that is full stops the journal, not the run."""

    def __init__(self, file: Path, head: RunHead) -> None:
        self.file = file
        self.problem = ""
        self._stream: IO[bytes] | None = None
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._stream = file.open("wb", buffering=0)
        except OSError as error:
            self.problem = f"{file} cannot be written: {error.strerror or error}"
        self._write({"head": encode(head)})

    def add(
        self,
        series: Iterable[ResourceSeries],
        marks: Iterable[StepMarks],
        printed: tuple[str, WorkerSteps] | None,
    ) -> None:
        """Append what was gathered since the last call."""
        for each in series:
            times, values = _times(each.seconds), [float(f"{value:.7g}") for value in each.values.tolist()]
            self._write({"series": [each.resource, each.worker, each.label, times, values]})
        for mark in marks:
            self._write({"marks": [mark.worker, _times(mark.ends), _times(mark.waits)]})
        if printed is not None and len(printed[1].ends):
            self._write({"printed": [printed[0], _times(printed[1].ends), _times(printed[1].seconds)]})

    def finish(self, end: RunEnd) -> None:
        """Write how the run ended."""
        self._write({"end": encode(end)})

    def close(self) -> None:
        """Close the file."""
        if self._stream is not None:
            self._stream.close()

    def _write(self, line: Mapping[str, Any]) -> None:
        if self.problem or self._stream is None:
            return
        try:
            self._stream.write(json.dumps(line, default=str, separators=(",", ":")).encode() + b"\n")
        except OSError as error:
            self.problem = f"{self.file} cannot be written: {error.strerror or error}"


def read_journal(file: Path) -> JournalRecord:
    """What a journal holds; a line that was cut off ends it."""
    head: RunHead | None = None
    end: RunEnd | None = None
    sampled: dict[tuple[Resource, int, str], list[tuple[list[float], list[float]]]] = {}
    marks: dict[int, MarkLog] = {}
    printed: dict[str, tuple[list[float], list[float]]] = {}
    for line in file.read_bytes().splitlines():
        try:
            ((kind, entry),) = json.loads(line).items()
        except ValueError:
            break
        if kind == "head":
            head = restore(RunHead, entry)
        elif kind == "series":
            resource, worker, label, seconds, values = entry
            sampled.setdefault((Resource(resource), worker, label), []).append((seconds, values))
        elif kind == "marks":
            worker, ends, waits = entry
            known = np.array([math.nan if wait is None else wait for wait in waits])
            marks.setdefault(worker, MarkLog()).add(np.array(ends), known)
        elif kind == "printed":
            source, ends, seconds = entry
            all_ends, all_seconds = printed.setdefault(source, ([], []))
            all_ends += ends
            all_seconds += seconds
        elif kind == "end":
            end = restore(RunEnd, entry)
    if head is None:
        raise InvalidData(str(file), "it is no journal of a run: the first line does not describe one")
    steps, source = hooked_steps(marks), HOOK_SOURCE
    if not steps and printed:  # of several patterns that matched what was printed, the most frequent one
        source, (ends, seconds) = max(printed.items(), key=lambda item: len(item[1][0]))
        steps = (WorkerSteps(worker=0, ends=np.array(ends), seconds=np.array(seconds)),)
    order = list(Resource)
    series = tuple(
        ResourceSeries(
            resource=resource,
            worker=worker,
            label=label,
            node=head.node,
            seconds=np.concatenate([seconds for seconds, _ in parts]),
            values=np.concatenate([values for _, values in parts]),
        )
        for (resource, worker, label), parts in sorted(
            sampled.items(), key=lambda item: (order.index(item[0][0]), *item[0][1:])
        )
    )
    return JournalRecord(
        head=head,
        end=end,
        source=source if steps else "",
        steps=tuple(replace(each, node=head.node) for each in steps),
        series=series,
    )


def write_journal(file: Path, gathered: JournalRecord) -> None:
    """Write what was gathered as a whole; a problem with the file is raised."""
    journal = Journal(file, gathered.head)
    is_hooked = gathered.source == HOOK_SOURCE
    marks = [_marks(each) for each in gathered.steps] if is_hooked else []
    printed = None if is_hooked or not gathered.steps else (gathered.source, gathered.steps[0])
    journal.add(gathered.series, marks, printed)
    if gathered.end is not None:
        journal.finish(gathered.end)
    journal.close()
    if journal.problem:
        raise BackendFailed(journal.problem)


def _marks(steps: WorkerSteps) -> StepMarks:
    """The marks that steps came from: the end of the first step, from which the second counts, included."""
    ends = np.concatenate([[steps.ends[0] - steps.seconds[0]], steps.ends])
    waits = steps.input_seconds if len(steps.input_seconds) else np.full(len(steps.ends), math.nan)
    return StepMarks(steps.worker, True, 0, ends, np.concatenate([[math.nan], waits]))


def journals_dir() -> Path:
    """Where journals of this user are kept while their runs last."""
    return user_data_dir() / "measuring"


def journal_file(run_id: str) -> Path:
    """The journal of a run."""
    return journals_dir() / f"{run_id}{_SUFFIX}"


def abandoned_journals() -> tuple[Path, ...]:
    """Journals whose foretrain was killed: no process watches their runs any more."""
    return tuple(file for file in sorted(journals_dir().glob(f"*{_SUFFIX}")) if not _is_watched(file))


def merge_nodes(parts: Sequence[JournalRecord]) -> JournalRecord:
    """The nodes of one job as one: the clock is that of the first node, workers keep their ranks."""
    ordered = sorted(parts, key=lambda part: part.head.node)
    first = ordered[0]
    shifts = [(part.head.started_at - first.head.started_at).total_seconds() for part in ordered]
    return JournalRecord(
        head=replace(first.head, environment=replace(first.head.environment, nodes=len(ordered))),
        end=_worst([part.end for part in ordered]),
        source=next((part.source for part in ordered if part.source), ""),
        steps=tuple(
            replace(each, ends=each.ends + shift)
            for part, shift in zip(ordered, shifts, strict=True)
            for each in part.steps
        ),
        series=tuple(
            replace(each, seconds=each.seconds + shift)
            for part, shift in zip(ordered, shifts, strict=True)
            for each in part.series
        ),
    )


def _worst(ends: Sequence[RunEnd | None]) -> RunEnd | None:
    """The end of the whole job: that of a node that failed where one did, and the longest time."""
    known = [end for end in ends if end is not None]
    if not known:
        return None
    failed = next((end for end in known if end.status is not Status.COMPLETED), known[0])
    return replace(failed, seconds=max(end.seconds for end in known))


def _is_watched(file: Path) -> bool:
    """Whether the process that writes a journal still runs; a journal without a head was just created."""
    try:
        with file.open("rb") as opened:
            pid = int(json.loads(opened.readline())["head"]["pid"])
    except (OSError, ValueError, KeyError):
        return True
    return Path(f"/proc/{pid}").exists()


def _times(seconds: Floats) -> list[float | None]:
    """To the microsecond; None where it is not known."""
    return [None if math.isnan(second) else round(second, 6) for second in seconds.tolist()]
