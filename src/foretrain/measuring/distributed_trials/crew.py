"""Start the workers of a distributed trial, one in each network namespace, and hand them tasks."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretrain.errors import BackendFailed
from foretrain.measuring.distributed_trials.member import FAILED, OUT_OF_MEMORY, MemberSettings, lacks_memory
from foretrain.measuring.distributed_trials.namespaces import Hosts, NamespaceHost, joined_hosts

_PORT = 29400
_START_SECONDS, _TASK_SECONDS = 90.0, 150.0
_GRACE_SECONDS = 2.0
_LOG_LINES = 3
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(4 << 30),
}
"""One thread for each worker, and memory that glibc keeps: whether it gives the top of its heap back after
each step is a matter of chance, and faulting its pages in again takes half as long as a small step."""


TIMED_OUT = "timed out"
_POLL_SECONDS = 0.02
_LAST_ANSWERS_SECONDS = 1.0
"""How long the others may take to answer after a worker failed."""


class WorkerFailed(BackendFailed):
    """A worker failed, ended or did not answer; `kind` is `failed`, `out of memory` or `timed out`.

    `is_crew_usable` where all workers answered nevertheless: they can do another task.
    """

    def __init__(self, message: str, kind: str, is_crew_usable: bool = False) -> None:
        super().__init__(message)
        self.kind = kind
        self.is_crew_usable = is_crew_usable


@dataclass(frozen=True)
class Crew:
    """Workers that are up and joined, and the server after the last of them."""

    hosts: Hosts
    members: tuple[_Member, ...]

    @property
    def workers(self) -> int:
        """How many train; the server is not counted."""
        return len(self.members) - 1

    @property
    def processes(self) -> tuple[int, ...]:
        """The ids of its processes, and of this one."""
        return (os.getpid(), *(member.process.pid for member in self.members))

    def kill(self) -> None:
        """End all processes at once, whatever they are doing."""
        for member in self.members:
            member.process.kill()

    def cap(self, bytes_per_second: float | None) -> None:
        """Limit every network card to a rate in each direction, or lift the limit."""
        self.hosts.cap(bytes_per_second)

    @property
    def member_processes(self) -> tuple[int, ...]:
        """The ids of the workers' processes in order of rank, and that of the server."""
        return tuple(member.process.pid for member in self.members)

    def do(self, trial: str, *, within: float = _TASK_SECONDS, **settings: Any) -> list[dict[str, Any]]:
        """Let all do one task (`package.module:function`); the answers of those that took part, in order.

        `WorkerFailed` is raised soon after one of them fails or ends, and after `within` seconds. The others
        may then wait for it without end: such a crew is not usable any more.
        """
        for member in self.members:
            member.send({"trial": trial, **settings})
        deadline = time.monotonic() + within
        answers: dict[int, dict[str, Any]] = {}
        failure = ""
        while len(answers) < len(self.members):
            for rank, member in enumerate(self.members):
                if rank not in answers and (answer := member.poll()) is not None:
                    answers[rank] = answer
                    if "error" in answer and not failure:
                        failure, deadline = answer["error"], time.monotonic() + _LAST_ANSWERS_SECONDS
            if len(answers) < len(self.members):
                if time.monotonic() > deadline:
                    break
                time.sleep(_POLL_SECONDS)
        if failure:
            kinds = {answer["kind"] for answer in answers.values() if "error" in answer}
            kind = OUT_OF_MEMORY if OUT_OF_MEMORY in kinds else FAILED
            raise WorkerFailed(failure, kind, is_crew_usable=len(answers) == len(self.members))
        if len(answers) < len(self.members):
            raise WorkerFailed(f"the workers did not answer within {within:g} s", TIMED_OUT)
        return [answers[rank] for rank in range(len(self.members)) if answers[rank]]


class _Member:
    """One process: tasks go in, answers come out of a thread that reads them."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process, self.log = process, log
        self._lines: queue.Queue[str] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def send(self, task: Mapping[str, Any]) -> None:
        """Hand it a task."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # a dead one is found out when it does not answer
            self.process.stdin.write(json.dumps(task) + "\n")
            self.process.stdin.flush()

    def line(self, seconds: float) -> str:
        """The next line it says; silence or death is an error."""
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            raise BackendFailed(f"a worker did not answer for {seconds:.0f} s{self._last_words()}") from None
        if not line:
            raise self._ended()
        return line

    def poll(self) -> dict[str, Any] | None:
        """Its answer to a task, None while there is none; its end is raised."""
        try:
            line = self._lines.get_nowait()
        except queue.Empty:
            return None
        if not line:
            raise self._ended()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _ended(self) -> WorkerFailed:
        code, last = self.process.wait(), self._last_words()
        killed = code == -signal.SIGKILL  # as the kernel does where memory is short
        kind = OUT_OF_MEMORY if killed or lacks_memory(last) else FAILED
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return WorkerFailed(f"a worker {how}{last}", kind)

    def _last_words(self) -> str:
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return ": " + " | ".join(lines[-_LOG_LINES:]) if lines else ""

    def dismiss(self) -> None:
        """Close its input: no more tasks will come."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()

    def end(self, deadline: float) -> None:
        """Wait for its end, and kill it if that takes too long."""
        assert self.process.stdout is not None
        try:
            self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._listener.join()
        self.process.stdout.close()


@contextmanager
def crew(workers: int, bytes_per_second: float | None = None) -> Iterator[Crew]:
    """`workers` workers and a server, each in a namespace, each worker on a core; removed afterwards."""
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="foretrain-crew-") as folder, joined_hosts(workers + 1) as hosts:
        members: list[_Member] = []
        try:
            for rank, host in enumerate(hosts.hosts):
                core = cores[rank % len(cores)] if rank < workers else None
                settings = MemberSettings(rank, workers, hosts.hosts[0].address, _PORT, core)
                log = Path(folder) / f"{rank}.log"
                members.append(_start_worker(host, settings, log))
            for member in members:
                member.line(_START_SECONDS)
            hosts.cap(bytes_per_second)
            yield Crew(hosts, tuple(members))
        finally:
            for member in members:
                member.dismiss()
            deadline = time.monotonic() + _GRACE_SECONDS
            for member in members:
                member.end(deadline)


def _start_worker(host: NamespaceHost, settings: MemberSettings, log: Path) -> _Member:
    command = [sys.executable, "-m", "foretrain.measuring.distributed_trials.member", settings.as_argument()]
    with log.open("w", encoding="utf-8") as errors:
        path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}  # trials may be outside the wheel
        return _Member(host.start(command, errors, _ENVIRONMENT | path), log)
