"""Run a training command and watch it: from a command to what was gathered of it, and to a stored run.

What nodes of one job gathered is merged. Nothing gathered is lost: a run that cannot be stored stays in a
file, and a run whose foretrain was killed is recovered from its journal later.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from foretrain.errors import ForetrainError, InvalidRequest
from foretrain.measuring.this_machine import this_environment
from foretrain.measuring.watching.command import (
    CommandNotStarted,
    RunningCommand,
    exit_code_of,
    forwarded_signals,
)
from foretrain.measuring.watching.journal import (
    Journal,
    JournalRecord,
    RunEnd,
    RunHead,
    abandoned_journals,
    journal_file,
    merge_nodes,
    read_journal,
    write_journal,
)
from foretrain.measuring.watching.progress import LineCutter, ProgressLog, parsers
from foretrain.measuring.watching.report import summarise
from foretrain.measuring.watching.samplers import INTERVAL_SECONDS, Sampler
from foretrain.measuring.watching.step_files import HOOK_SOURCE, HookReader, MarkLog, StepMarks, hooked_steps
from foretrain.measuring.watching.step_hook import CHANNEL_VARIABLE
from foretrain.store.runs import NODE, PredictionMade, Run, Status, WorkerSteps, new_run_id

WATCHED_VARIABLE = "FORETRAIN_RUN"
"""The id of the run, for the command and its callbacks."""
PROVENANCE = "measure"
RECOVERED = "measure, recovered"
_TURN_SECONDS = 0.25
"""How long a turn of the loop waits for output before it looks at the rest."""
_POLL_SECONDS = 0.5
_JOURNAL_SECONDS = 1.0
"""What a crash of foretrain itself may lose."""
_MOST_PARSED_BYTES = 1 << 14
"""Of a large piece of output only the end is parsed: a command that prints megabytes is not slowed."""
_TAIL_BYTES = 4096
"""The end of the output, in which an exception is looked for."""
_OUT_OF_MEMORY = (b"out of memory", b"OutOfMemoryError", b"can't allocate memory", b"MemoryError")
_SHARED_MEMORY = Path("/dev/shm")
_INTERRUPTED = (130, 143)
"""Exit codes after SIGINT and SIGTERM."""


@dataclass(frozen=True, kw_only=True)
class WatchRequest:
    """A command to watch. `join` is the folder that the nodes of one job share."""

    command: tuple[str, ...]
    setting: Mapping[str, Any]
    interval_seconds: float = INTERVAL_SECONDS
    prediction: PredictionMade | None = None
    join: Path | None = None
    node: int = 0
    nodes: int = 1
    output_to_stderr: bool = False


@dataclass(frozen=True)
class Live:
    """How far a run is: steps done, their total where known, the latest step time, seconds so far.

    `at_line_start` says whether the command ended its last line: it may be drawing a bar.
    """

    steps: int
    total: int | None
    step_seconds: float | None
    seconds: float
    at_line_start: bool


Show = Callable[[Live], None]
Hide = Callable[[], None]


class Watched(NamedTuple):
    """What was gathered, where its journal is, and what went wrong with the journal."""

    gathered: JournalRecord
    journal: Path
    problem: str


def watch(
    request: WatchRequest,
    show: Show = lambda _: None,
    hide: Hide = lambda: None,
) -> Watched:
    """Run the command to its end and gather its steps and resources.

    `show` is called now and then with the progress, `hide` before output of the command is passed on.
    """
    head = RunHead(
        id=new_run_id(),
        started_at=datetime.now(UTC),
        command=request.command,
        setting=request.setting,
        environment=this_environment(nodes=request.nodes),
        pid=os.getpid(),
        node=request.node,
        nodes=request.nodes,
        prediction=request.prediction,
    )
    file = journal_file(head.id) if request.join is None else node_journal(request.join, request.node)
    channel = channel_folder(head.id)
    channel.mkdir(mode=0o700)
    journal = Journal(file, head)
    try:
        gathered = _Watching(request, head, journal, channel).run(show, hide)
    except CommandNotStarted:
        file.unlink(missing_ok=True)
        raise
    finally:
        journal.close()
        shutil.rmtree(channel, ignore_errors=True)
    return Watched(gathered, file, journal.problem)


def node_journal(folder: Path, node: int) -> Path:
    """The journal of a node in the folder its job shares."""
    return folder / f"node-{node}.jsonl"


def run_of(gathered: JournalRecord, provenance: str = PROVENANCE) -> Run:
    """What was gathered as a run that a store keeps."""
    head, end = gathered.head, gathered.end
    last = max((float(each.seconds[-1]) for each in gathered.series if len(each.seconds)), default=0.0)
    return Run(
        id=head.id,
        started_at=head.started_at,
        seconds=last if end is None else end.seconds,
        status=Status.INTERRUPTED if end is None else end.status,
        exit_code=None if end is None else end.exit_code,
        command=head.command,
        setting=head.setting,
        environment=replace(head.environment, devices_per_node=_workers_per_node(gathered)),
        provenance=provenance,
        summary=summarise(gathered.steps, gathered.source),
        prediction=head.prediction,
        steps=gathered.steps,
        series=gathered.series,
        message="foretrain was killed while it watched the command" if end is None else end.message,
    )


def _workers_per_node(gathered: JournalRecord) -> int:
    """GPUs of a node; on a CPU the workers that ran on one node."""
    environment = gathered.head.environment
    placed = [(each.node, each.worker) for each in gathered.steps]
    placed += [(each.node, each.worker) for each in gathered.series if each.worker != NODE]
    workers: dict[int, set[int]] = {}
    for node, worker in placed:
        workers.setdefault(node, set()).add(worker)
    most = max(map(len, workers.values()), default=1)
    return most if most > 1 else environment.devices_per_node


def channel_folder(run_id: str) -> Path:
    """The folder for the step files of a run: in memory, so that a full disk loses no step."""
    writable = _SHARED_MEMORY.is_dir() and os.access(_SHARED_MEMORY, os.W_OK)
    return (_SHARED_MEMORY if writable else Path(tempfile.gettempdir())) / f"foretrain-{run_id}"


def _reason(returncode: int) -> str:
    """Why a command that printed nothing ended: its exit code, or the signal that killed it."""
    if returncode >= 0:
        return f"exit code {returncode}"
    return f"killed by signal {-returncode} ({signal.Signals(-returncode).name})"


class _Watching:
    """The state of a run while it is watched."""

    def __init__(self, request: WatchRequest, head: RunHead, journal: Journal, channel: Path) -> None:
        self._request = request
        self._head = head
        self._journal = journal
        self._channel = channel
        self._origin = time.monotonic()
        self._hook = HookReader(channel, self._origin)
        self._marks: dict[int, MarkLog] = {}
        self._progress = ProgressLog(tuple(parsers().values()))
        self._cutters: dict[int, LineCutter] = {}
        self._tail = b""
        self._journalled = 0.0
        self._sampled = -math.inf
        self._printed: dict[str, int] = {}

    def run(self, show: Show, hide: Hide) -> JournalRecord:
        """Watch until the command ends."""
        request = self._request
        environment = {
            "PYTHONUNBUFFERED": "1",  # progress arrives when it is printed, also through a pipe
            **os.environ,
            CHANNEL_VARIABLE: str(self._channel),
            WATCHED_VARIABLE: self._head.id,
        }
        stdout = 2 if request.output_to_stderr else 1
        running = RunningCommand(request.command, environment, stdout)
        try:
            with (
                forwarded_signals(running),
                Sampler(
                    (running.pid,), request.interval_seconds, origin=self._origin, watch_others=True
                ) as sampler,
            ):
                while running.returncode is None:
                    self._turn(running, sampler, show, hide)
                for channel, data in running.drain():
                    self._read(channel, data)
                seconds = time.monotonic() - self._origin
        finally:
            running.close()
        hide()
        assert running.returncode is not None
        end = self._end(running, running.returncode, seconds)
        self._write_journal(sampler)
        self._journal.finish(end)
        source, steps = self._steps()
        node = self._head.node
        return JournalRecord(
            head=self._head,
            end=end,
            source=source,
            steps=tuple(replace(each, node=node) for each in steps),
            series=tuple(replace(each, node=node) for each in sampler.series()),
        )

    def _turn(
        self,
        running: RunningCommand,
        sampler: Sampler,
        show: Callable[[Live], None],
        hide: Callable[[], None],
    ) -> None:
        """One turn of the loop: pass output on, and once a second look at the steps."""
        if running.has_output(_TURN_SECONDS):
            hide()
            for channel, data in running.read():
                self._read(channel, data)
        now = time.monotonic() - self._origin
        if now - self._journalled >= _JOURNAL_SECONDS:
            self._write_journal(sampler)
            show(self._live(now))

    def _read(self, channel: int, data: bytes) -> None:
        at = time.monotonic() - self._origin
        self._tail = (self._tail + data)[-_TAIL_BYTES:]
        cutter = self._cutters.setdefault(channel, LineCutter())
        for line in cutter.lines(data[-_MOST_PARSED_BYTES:]):
            self._progress.read(line, at)
        self._progress.read(cutter.rest(), at, is_whole=False)

    def _write_journal(self, sampler: Sampler) -> None:
        self._journalled = time.monotonic() - self._origin
        marks, series = self._new_marks(sampler), sampler.series(since=self._sampled)
        self._journal.add(series, marks, self._newly_printed())
        self._sampled = max(
            (float(each.seconds[-1]) for each in series if len(each.seconds)), default=self._sampled
        )

    def _new_marks(self, sampler: Sampler) -> list[StepMarks]:
        marks = self._hook.new_marks()
        for mark in marks:
            if mark.is_ranked and mark.worker not in self._marks:
                sampler.assign(mark.pid, mark.worker)
            self._marks.setdefault(mark.worker, MarkLog()).add(mark.ends, mark.waits)
        return marks

    def _newly_printed(self) -> tuple[str, WorkerSteps] | None:
        """Printed steps since the last look; none where the hook knows better."""
        printed = None if self._marks else self._progress.steps()
        if printed is None:
            return None
        source, steps = printed
        start = self._printed.get(source, 0)
        self._printed[source] = len(steps.ends)
        return source, replace(steps, ends=steps.ends[start:], seconds=steps.seconds[start:])

    def _steps(self) -> tuple[str, tuple[WorkerSteps, ...]]:
        """The steps and where they come from: the hook where the script calls it, else what is printed."""
        hooked = hooked_steps(self._marks)
        if hooked:
            return HOOK_SOURCE, hooked
        printed = self._progress.steps()
        return ("", ()) if printed is None else (printed[0], (printed[1],))

    def _live(self, now: float) -> Live:
        at_line_start = not self._tail or self._tail.endswith(b"\n")
        if self._marks:
            longest = max(self._marks.values(), key=lambda log: len(log.ends))
            recent = longest.ends[-20:]
            step_seconds = (recent[-1] - recent[0]) / (len(recent) - 1) if len(recent) > 1 else None
            return Live(len(longest.ends), self._total(), step_seconds, now, at_line_start)
        printed, (done, total) = self._progress.steps(), self._progress.position()
        step_seconds = float(printed[1].seconds[-20:].mean()) if printed is not None else None
        return Live(done, self._total() or total, step_seconds, now, at_line_start)

    def _total(self) -> int | None:
        total = self._request.setting.get("steps")
        return int(total) if total else None

    def _end(self, running: RunningCommand, returncode: int, seconds: float) -> RunEnd:
        code = exit_code_of(returncode)
        status, message = Status.COMPLETED, ""
        if code:
            status, message = Status.FAILED, self._last_line() or _reason(returncode)
            if running.was_asked_to_end or code in _INTERRUPTED:
                status = Status.INTERRUPTED
            elif any(text in self._tail for text in _OUT_OF_MEMORY):
                status = Status.OUT_OF_MEMORY
        return RunEnd(seconds=seconds, status=status, exit_code=code, message=message)

    def _last_line(self) -> str:
        lines = (line.strip() for line in self._tail.decode(errors="replace").splitlines())
        printable = ("".join(sign for sign in line if sign.isprintable()) for line in lines)
        return ([line for line in printable if line] or [""])[-1][:300]


def joined_nodes(folder: Path, nodes: int, wait_seconds: float) -> JournalRecord:
    """What all nodes of a job gathered. Nodes that do not end in time are left out of the result."""
    deadline = time.monotonic() + wait_seconds
    while True:
        parts = _ended_parts(folder, nodes)
        if len(parts) == nodes or time.monotonic() > deadline:
            return merge_nodes(parts)
        time.sleep(_POLL_SECONDS)


def _ended_parts(folder: Path, nodes: int) -> list[JournalRecord]:
    """The nodes whose commands have ended, the first node always."""
    files = [node_journal(folder, node) for node in range(nodes)]
    parts = [read_journal(file) for file in files if file.exists()]
    return [part for part in parts if part.end is not None]


def check_store(url: str | None) -> None:
    """Open the store before hours of training, so that one that cannot be written is refused now."""
    from foretrain.store import open_store

    with open_store(url):
        pass


def keep(run: Run, url: str | None) -> str:
    """Store a run; returns the place of the store."""
    from foretrain.store import open_store

    with open_store(url) as store:
        store.add(run)
        return store.place


def rescue(watched: Watched) -> Path:
    """Where a run stays that cannot be stored: in its journal, or in a file of the temporary folder."""
    if not watched.problem:
        return watched.journal
    file = Path(tempfile.gettempdir()) / f"foretrain-{watched.gathered.head.id}.jsonl"
    write_journal(file, watched.gathered)
    return file


def recover(url: str | None) -> tuple[Run, ...]:
    """Store the runs whose foretrain was killed, and those that could not be stored at their end."""
    from foretrain.store import open_store

    recovered = []
    with open_store(url) as store:
        for file in abandoned_journals():
            try:
                run = run_of(read_journal(file), RECOVERED)
            except (ForetrainError, OSError):  # it stays for its owner to look at
                continue
            try:
                store.add(run)
                recovered.append(run)
            except InvalidRequest:  # it was stored before its journal could be removed
                pass
            file.unlink(missing_ok=True)
            shutil.rmtree(channel_folder(run.id), ignore_errors=True)
    return tuple(recovered)
