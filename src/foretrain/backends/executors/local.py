"""This machine: each node of the fleet is a part of its CPUs (or GPUs), and attempts are pinned to them.

Devices are numbered node by node. Where the machine has that many NVIDIA GPUs, device i is GPU i; else a
device is an equal part of the CPUs, at least one, shared where there are more devices than CPUs. Attempts are
processes in sessions of their own: they outlive foretrain and are found again by process id and start time.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from foretrain.backends.executors._base import Attempt, Executor, Handle, Host
from foretrain.backends.supervise import stamp
from foretrain.errors import BackendFailed
from foretrain.scheduling.problem import Fleet

_PROC = Path("/proc")
_STATE, _START_TIME = 0, 19
"""Fields of /proc/PID/stat after the name of the command."""


class LocalExecutor(Executor):
    """Processes of this machine."""

    name = "local"
    summary = "Processes of this machine, pinned to CPUs or GPUs."
    follows_parent = False

    def __init__(self, fleet: Fleet, options: Mapping[str, str]) -> None:
        del options
        self._gpus = [
            max(fleet.types[name].gpus for name in group.types)
            for group in fleet.groups
            for _ in range(group.count)
        ]
        self._cpus = sorted(os.sched_getaffinity(0))
        self._has_gpus = len(_nvidia_gpus()) >= sum(self._gpus)
        self._boot = str(stamp()["boot"])
        self._children: set[int] = set()

    def hosts(self) -> tuple[Host, ...]:
        """One for each node of the fleet; they never fail separately."""
        return tuple(Host(f"local-{node}", gpus) for node, gpus in enumerate(self._gpus))

    def cpus(self, host: str, devices: Sequence[int]) -> tuple[int, ...]:
        """An equal part of the CPUs for each device."""
        count, total = len(self._cpus), sum(self._gpus)
        each = max(1, count // total)
        first = self._first_device(host)
        places = {((first + device) * each + part) % count for device in devices for part in range(each)}
        return tuple(self._cpus[place] for place in sorted(places))

    def environment(self, host: str, devices: Sequence[int]) -> Mapping[str, str]:
        """As many threads as CPUs, and the GPUs where there are any."""
        threads = {"OMP_NUM_THREADS": str(len(self.cpus(host, devices)))}
        if not self._has_gpus:
            return threads
        first = self._first_device(host)
        return {**threads, "CUDA_VISIBLE_DEVICES": ",".join(str(first + device) for device in devices)}

    def start(self, attempt: Attempt) -> Handle:
        """A supervisor for each node of the attempt, in a session of its own."""
        processes = []
        for rank in range(len(attempt.hosts)):
            try:
                pid = _spawn(attempt.command(rank), {**os.environ, "FORETRAIN_ATTEMPT": attempt.key})
            except OSError as error:
                raise BackendFailed(f"cannot start a process for {attempt.job}: {error}") from error
            self._children.add(pid)
            processes.append([pid, _start_time(pid)])
        return {"boot": self._boot, "processes": processes}

    def find(self, attempt: Attempt) -> Handle | None:
        """By the key in the environment of supervisors."""
        wanted = f"FORETRAIN_ATTEMPT={attempt.key}".encode()
        processes = [
            [pid, _start_time(pid)]
            for pid in _process_ids()
            if wanted in _read(pid, "environ").split(b"\0") and b"supervise.py" in _read(pid, "cmdline")
        ]
        return {"boot": self._boot, "processes": processes} if processes else None

    def alive(self, handles: Mapping[str, Handle]) -> frozenset[str]:
        """Those of which all processes run; one that ended is no longer a child."""
        self._children = {pid for pid in self._children if not _is_reaped(pid)}
        return frozenset(key for key, handle in handles.items() if self._runs(handle))

    def _runs(self, handle: Handle) -> bool:
        return handle["boot"] == self._boot and all(
            start is not None and _start_time(pid) == start for pid, start in handle["processes"]
        )

    def kill(self, key: str, handle: Handle) -> None:
        """SIGKILL; the command ends with its supervisor."""
        del key
        for pid, start in handle["processes"] if handle["boot"] == self._boot else ():
            if start is not None and _start_time(pid) == start:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _first_device(self, host: str) -> int:
        return sum(self._gpus[: int(host.rpartition("-")[2])])


def _spawn(command: list[str], environment: Mapping[str, str]) -> int:
    """Start a process in a session of its own, without input or output."""
    nothing = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    return os.posix_spawn(command[0], command, environment, file_actions=nothing, setsid=True)


def _is_reaped(pid: int) -> bool:
    """Whether a child has ended; its entry in the table of processes is then free."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since the boot; None if it has ended."""
    fields = _read(pid, "stat").rpartition(b") ")[2].split()
    return int(fields[_START_TIME]) if fields and fields[_STATE] not in (b"Z", b"X") else None


def _read(pid: int, name: str) -> bytes:
    try:
        return (_PROC / str(pid) / name).read_bytes()
    except OSError:
        return b""


def _process_ids() -> Iterator[int]:
    return (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())


def _nvidia_gpus() -> list[Path]:
    folder = _PROC / "driver" / "nvidia" / "gpus"
    return list(folder.iterdir()) if folder.is_dir() else []
