"""Several machines on one: network namespaces joined by a bridge, each with a network card of a chosen rate.

Everything lives in namespaces of its own, the bridge too, so nothing of the host's network is touched and
deleting them deletes all there was. Their names carry the id of the process that made them and the number of
the group in that process: what a killed process left behind is removed by the next that comes.

    hub:      bridge ── port0 ── port1 ...
                          │        │
    host 0, 1, ...:     eth0     eth0      10.83.0.1, 10.83.0.2, ...

A cap holds in each direction separately, as on a full-duplex card: the host's side shapes what it sends, the
hub's side what it receives.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

from foretrain.errors import BackendFailed, MissingData

INTERFACE = "eth0"
_PREFIX = "foretrain"
_SUBNET = "10.83.0"
_BURST_BYTES = 128 * 1024
"""What may leave at once: two of the largest packets a virtual card hands on."""
_QUEUE_BYTES = 4 * 1024 * 1024
_NAMED = Path("/run/netns")
_GROUPS = itertools.count()
"""Numbers the groups of namespaces of one process."""


@dataclass(frozen=True)
class NamespaceHost:
    """One namespace: the name it has on this machine and its address on the bridge."""

    namespace: str
    address: str

    def start(
        self, command: Sequence[str], log: IO[str], environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start a command there, its input and output piped; its process has the id of the `Popen`."""
        return subprocess.Popen(
            ["ip", "netns", "exec", self.namespace, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, **(environment or {})},
        )


@dataclass(frozen=True)
class Hosts:
    """All namespaces joined by one bridge."""

    hub: str
    hosts: tuple[NamespaceHost, ...]

    def cap(self, bytes_per_second: float | None) -> None:
        """Limit every card to a rate in each direction, or lift the limit."""
        for index, host in enumerate(self.hosts):
            _limit(host.namespace, INTERFACE, bytes_per_second)
            _limit(self.hub, _port(index), bytes_per_second)


def why_not() -> str | None:
    """Why no namespaces can be made here, or None where they can."""
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        return f"there is no {' and no '.join(missing)} here: apt-get install iproute2"
    if os.geteuid() != 0:
        return "network namespaces need root: run as root, e.g. with sudo"
    return None


@contextmanager
def joined_hosts(count: int, bytes_per_second: float | None = None) -> Iterator[Hosts]:
    """Namespaces on one bridge, removed afterwards, also when interrupted or asked to end."""
    problem = why_not()
    if problem:
        raise MissingData(problem)
    remove_left_behind()
    group = f"{_PREFIX}-{os.getpid()}-{next(_GROUPS)}"
    with _ending_is_an_exception():
        try:
            yield _build(group, count, bytes_per_second)
        finally:
            _remove(name for name in named() if name.startswith(f"{group}-"))


def named() -> tuple[str, ...]:
    """The names of all namespaces that foretrain made on this machine."""
    if not _NAMED.is_dir():
        return ()
    return tuple(sorted(entry.name for entry in _NAMED.iterdir() if _maker(entry.name) is not None))


def remove_left_behind() -> tuple[str, ...]:
    """Remove the namespaces of ended processes; returns their names."""
    dead = tuple(name for name in named() if not Path(f"/proc/{_maker(name)}").exists())
    _remove(dead)
    return dead


def _maker(name: str) -> int | None:
    """The id of the process that made a namespace, None where it is none of ours."""
    prefix, _, rest = name.partition("-")
    maker = rest.partition("-")[0]
    return int(maker) if prefix == _PREFIX and maker.isdecimal() else None


def _port(index: int) -> str:
    return f"port{index}"


def _build(group: str, count: int, bytes_per_second: float | None) -> Hosts:
    hub = f"{group}-hub"
    _ip("netns", "add", hub)
    _ip("-n", hub, "link", "add", "bridge0", "type", "bridge")
    _ip("-n", hub, "link", "set", "bridge0", "up")
    hosts = Hosts(hub, tuple(_join(group, hub, index) for index in range(count)))
    if bytes_per_second is not None:
        hosts.cap(bytes_per_second)
    return hosts


def _join(group: str, hub: str, index: int) -> NamespaceHost:
    host = NamespaceHost(f"{group}-{index}", f"{_SUBNET}.{index + 1}")
    port, inside = _port(index), ("-n", host.namespace)
    _ip("netns", "add", host.namespace)
    _ip("-n", hub, "link", "add", port, "type", "veth", "peer", "name", INTERFACE, "netns", host.namespace)
    _ip("-n", hub, "link", "set", port, "master", "bridge0")
    _ip("-n", hub, "link", "set", port, "up")
    _ip(*inside, "address", "add", f"{host.address}/24", "dev", INTERFACE)
    _ip(*inside, "link", "set", "lo", "up")
    _ip(*inside, "link", "set", INTERFACE, "up")
    return host


def _limit(namespace: str, interface: str, bytes_per_second: float | None) -> None:
    if bytes_per_second is None:
        queues = _output("tc", "-n", namespace, "qdisc", "show", "dev", interface)
        if "tbf" in queues:
            _output("tc", "-n", namespace, "qdisc", "del", "dev", interface, "root")
        return
    rate = f"{round(8 * bytes_per_second)}bit"
    shaping = ("tbf", "rate", rate, "burst", str(_BURST_BYTES), "limit", str(_QUEUE_BYTES))
    _output("tc", "-n", namespace, "qdisc", "replace", "dev", interface, "root", *shaping)


def _remove(names: Iterable[str]) -> None:
    for name in names:
        _ip("netns", "delete", name)


def _ip(*words: str) -> str:
    return _output("ip", *words)


def _output(*command: str) -> str:
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise BackendFailed(f"{' '.join(command)} failed: {run.stderr.strip() or run.returncode}")
    return run.stdout


@contextmanager
def _ending_is_an_exception() -> Iterator[None]:
    """Let a request to end (SIGTERM) unwind the stack, so that what was set up is taken down."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        del frame
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
