"""What /proc reports about running processes: CPU time, memory, disk, descendants, network counters.

Files of a process are opened once and read again at each sample, which is several times cheaper than opening
them anew. A process that has ended raises `ProcessLookupError`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PROC = "/proc"
_CPU_CLOCK_OF_A_PROCESS = 2
"""CPUCLOCK_SCHED of the kernel: the time all threads of a process have run, in nanoseconds."""
_NET_HEADER_LINES = 2
_TRANSMIT_BYTES_FIELD = 8


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process has used since its start, and the memory it holds now."""

    cpu_seconds: float
    memory_bytes: int
    read_bytes: int
    written_bytes: int


class InterfaceTraffic(NamedTuple):
    """Bytes that went through a network interface since it was created."""

    transmitted_bytes: int
    received_bytes: int


class WatchedProcess:
    """One process and its open files in /proc."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._clock = (~pid << 3) | _CPU_CLOCK_OF_A_PROCESS
        self._memory = _open(f"{_PROC}/{pid}/statm")
        self._disk = _open_if_allowed(f"{_PROC}/{pid}/io")

    def usage(self) -> Usage:
        """What the process has used by now."""
        try:
            cpu_seconds = time.clock_gettime(self._clock)
        except OSError as error:
            raise ProcessLookupError(f"process {self.pid} has ended") from error
        pages = int(os.pread(self._memory, 256, 0).split()[1])
        read, written = (0, 0) if self._disk is None else _disk_bytes(os.pread(self._disk, 512, 0))
        return Usage(cpu_seconds, pages * PAGE_BYTES, read, written)

    def close(self) -> None:
        """Close its files."""
        os.close(self._memory)
        if self._disk is not None:
            os.close(self._disk)


class WatchedNetwork:
    """The interfaces of a network namespace, read through a process that lives in it."""

    def __init__(self, pid: int) -> None:
        self._counters = _open(f"{_PROC}/{pid}/net/dev")
        self._latest: tuple[bytes, dict[str, InterfaceTraffic]] = b"", {}

    def traffic(self) -> dict[str, InterfaceTraffic]:
        """The counters of each interface by its name."""
        table = os.pread(self._counters, 16384, 0)
        if table != self._latest[0]:
            self._latest = table, traffic_of(table)
        return self._latest[1]

    def close(self) -> None:
        """Close its file."""
        os.close(self._counters)


def traffic_of(table: bytes) -> dict[str, InterfaceTraffic]:
    """The counters in the text of /proc/net/dev."""
    counters = {}
    for line in table.splitlines()[_NET_HEADER_LINES:]:
        name, _, numbers = line.partition(b":")
        fields = numbers.split()
        counters[name.strip().decode()] = InterfaceTraffic(int(fields[_TRANSMIT_BYTES_FIELD]), int(fields[0]))
    return counters


def descendants(pid: int) -> Iterator[int]:
    """The process and all processes it started that still run, parents before children."""
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        yield parent
        waiting += _children(parent)


def network_namespace(pid: int | str = "self") -> int:
    """The number of the network namespace a process lives in."""
    return Path(f"{_PROC}/{pid}/ns/net").stat().st_ino


def environment_of(pid: int) -> Mapping[str, str]:
    """The environment a process was started with; empty where reading it is not allowed."""
    try:
        entries = Path(f"{_PROC}/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    pairs = (entry.decode(errors="replace").partition("=") for entry in entries)
    return {name: value for name, _, value in pairs if name}


def _children(pid: int) -> list[int]:
    """Each thread of a process has its own list of children."""
    try:
        threads = list(Path(f"{_PROC}/{pid}/task").iterdir())
    except OSError:
        return []
    listed: list[int] = []
    for thread in threads:
        try:
            listed += map(int, (thread / "children").read_bytes().split())
        except OSError:  # the thread has ended
            continue
    return listed


def _disk_bytes(text: bytes) -> tuple[int, int]:
    fields = text.split()  # "rchar: 23717299", "wchar: 0" ...: the kernel keeps this order
    return int(fields[9]), int(fields[11])


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise ProcessLookupError(f"{path}: the process has ended") from error


def _open_if_allowed(path: str) -> int | None:
    try:
        return _open(path)
    except PermissionError:
        return None
