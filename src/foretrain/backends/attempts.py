"""The attempts that may run now: started, watched, stopped with a checkpoint, given up, and found again."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from foretrain.backends.executors._base import Executor
from foretrain.backends.job_files import (
    Exit,
    JobCommand,
    JobProgress,
    ask_to_stop,
    done_before,
    exit_of,
    forget_unsaved,
    has_begun,
    prepare,
    progress_of,
    set_owner,
)
from foretrain.backends.records import STARTING, LiveAttempt, attempt_of
from foretrain.errors import BackendFailed
from foretrain.store.schedules import Row


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a schedule is run.

    A decision is asked for every `every_seconds` at least; a wake-up that a policy asks for comes at the
    earliest `pause_seconds` after a decision, since decisions take time themselves. Ends of jobs are looked
    for every `poll_seconds`, the health of jobs and hosts every `check_seconds`. A job that is asked to stop
    has `grace_seconds` for its checkpoint. After `max_failures` in a row without progress a job is given up.
    A cluster that does not answer, or on which nothing can run, is waited for during `patience_seconds`.
    """

    every_seconds: float = math.inf
    pause_seconds: float = 1.0
    poll_seconds: float = 0.1
    check_seconds: float = 1.0
    grace_seconds: float = 60.0
    max_failures: int = 5
    patience_seconds: float = 600.0


class Attempts:
    """At most one live attempt for each job."""

    def __init__(
        self, executor: Executor, folder: Path, commands: Mapping[str, JobCommand], options: RunOptions
    ) -> None:
        self.live: dict[str, LiveAttempt] = {}
        self.executor = executor
        self.folder = folder
        self._commands = commands
        self._options = options
        self._missing: set[str] = set()

    def reports(self, job: str) -> bool:
        """Whether a job writes its progress."""
        return self._commands[job].reports

    def progress(self, job: str) -> JobProgress:
        """What a job reported last."""
        return progress_of(self.folder, job)

    def on_node(self, node: int) -> tuple[LiveAttempt, ...]:
        """The attempts on a node."""
        return tuple(each for each in self.live.values() if node in each.attempt.nodes)

    def free_devices(self, node: int, gpus: int) -> tuple[int, ...]:
        """The first devices of a node that no attempt uses."""
        used = {
            device
            for each in self.on_node(node)
            for device in each.attempt.devices[each.attempt.nodes.index(node)]
        }
        free = (device for device in range(len(used) + gpus) if device not in used)
        return tuple(next(free) for _ in range(gpus))

    def launch(self, live: LiveAttempt) -> LiveAttempt:
        """Start an attempt that is stored as `starting`."""
        attempt = live.attempt
        self.live[attempt.job] = live
        prepare(self.folder, attempt, self._commands[attempt.job], self.executor, self._options.grace_seconds)
        started = live.with_handle(self.executor.start(attempt))
        self.live[attempt.job] = started
        return started

    def recover(self, row: Row) -> LiveAttempt | None:
        """Take on an attempt that another foretrain left; None if it never began, nor ever will."""
        attempt = attempt_of(row, self.folder)
        handle = row["handle"]
        if handle is None and row["state"] == STARTING:
            handle = self.executor.find(attempt)
            if handle is None and not has_begun(attempt):
                set_owner(self.folder, attempt.job, "")
                if not has_begun(attempt):  # nor did it between the two looks
                    return None
        started = row["started_seconds"]
        live = LiveAttempt(attempt, started, started, done_before(attempt), handle)
        self.live[attempt.job] = live
        return live

    def ended(self) -> Iterator[tuple[LiveAttempt, Exit]]:
        """The attempts that have ended."""
        for live in list(self.live.values()):
            exit_ = exit_of(live.attempt)
            if exit_ is not None:
                yield live, exit_

    def gone(self) -> list[LiveAttempt]:
        """The attempts that vanished without an exit record: absent in two successive looks."""
        handles = {live.attempt.key: live.handle for live in self.live.values() if live.handle is not None}
        alive = self.executor.alive(handles)
        absent = {each.attempt.key: each for each in self.live.values() if each.attempt.key not in alive}
        twice = [live for key, live in absent.items() if key in self._missing]
        self._missing = set(absent)
        return [live for live in twice if exit_of(live.attempt) is None]

    def end(self, live: LiveAttempt, *, is_complete: bool) -> None:
        """An attempt has ended, or has to end now: no process of it goes on."""
        job = live.attempt.job
        set_owner(self.folder, job, "")
        if live.handle is not None:
            with suppress(BackendFailed):  # the host may be gone; its supervisor ends by itself
                end = self.executor.release if is_complete else self.executor.kill
                end(live.attempt.key, live.handle)
        if not is_complete:
            forget_unsaved(self.folder, job)
        del self.live[job]
        self._missing.discard(live.attempt.key)

    def stop(self, jobs: Iterable[str]) -> Iterator[tuple[LiveAttempt, Exit | None]]:
        """Stop jobs with a checkpoint; yields each as it ends, without an exit where it did not in time."""
        waiting = {job: self.live[job] for job in jobs}
        for live in waiting.values():
            ask_to_stop(live.attempt)
        deadline = time.monotonic() + self._options.grace_seconds + 2 * self._options.check_seconds
        next_check = time.monotonic() + self._options.check_seconds
        while waiting:
            is_late, gone = time.monotonic() > deadline, set()
            if time.monotonic() > next_check:
                next_check = time.monotonic() + self._options.check_seconds
                with suppress(BackendFailed):
                    gone = {live.attempt.job for live in self.gone()}
            for job, live in list(waiting.items()):
                exit_ = exit_of(live.attempt)
                if exit_ is not None or is_late or job in gone:
                    del waiting[job]
                    yield live, exit_
            if waiting:
                time.sleep(self._options.poll_seconds)
