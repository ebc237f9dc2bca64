"""What a kind of cluster has to offer: its hosts, and starting, finding and ending attempts on them.

All else is the same everywhere: how jobs are stopped with a checkpoint, when one has ended, what is stored.
A new kind is a class in a module beside this one; it is found by its name.
"""

from __future__ import annotations

import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from foretrain.backends import supervise
from foretrain.errors import UnknownName
from foretrain.registry import Registry, modules_beside
from foretrain.scheduling.problem import Fleet

Handle = Mapping[str, Any]
"""Plain data that finds a started attempt again, also for another process."""


@dataclass(frozen=True, slots=True)
class Host:
    """A machine (or a part of this one) that can be a node of the fleet, and whether it works now."""

    name: str
    gpus: int
    is_alive: bool = True


@dataclass(frozen=True)
class Attempt:
    """One start of a job: `gpus` devices on each of `hosts`; `devices` numbers them on each host.

    `key` is unique: names of processes, actors and Slurm jobs carry it, so that an attempt whose handle was
    never stored is found again.
    """

    key: str
    job: str
    number: int
    folder: Path
    node_type: str
    gpus: int
    nodes: tuple[int, ...]
    hosts: tuple[str, ...]
    devices: tuple[tuple[int, ...], ...]

    def command(self, rank: int | str = 0) -> list[str]:
        """The command that runs the attempt on one of its hosts."""
        return [sys.executable, "-I", "-S", str(Path(supervise.__file__)), str(self.folder), str(rank)]


class Executor(ABC):
    """A cluster. Final classes take the fleet and options as text; methods raise `BackendFailed`.

    `follows_parent` states whether a supervisor has to end with the process that started it.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    follows_parent: ClassVar[bool]
    options: ClassVar[Mapping[str, str]] = {}
    """What each option means."""

    @abstractmethod
    def __init__(self, fleet: Fleet, options: Mapping[str, str]) -> None:
        """Connect; nothing is started yet."""

    @abstractmethod
    def hosts(self) -> tuple[Host, ...]:
        """All hosts as they are now, always in the same order."""

    @abstractmethod
    def start(self, attempt: Attempt) -> Handle:
        """Start an attempt whose folder is prepared."""

    @abstractmethod
    def find(self, attempt: Attempt) -> Handle | None:
        """The handle of an attempt that may have been started before foretrain was killed."""

    @abstractmethod
    def alive(self, handles: Mapping[str, Handle]) -> frozenset[str]:
        """The keys of the attempts that still run or wait to run, of those given."""

    @abstractmethod
    def kill(self, key: str, handle: Handle) -> None:
        """End an attempt without a checkpoint; may be repeated."""

    def release(self, key: str, handle: Handle) -> None:  # noqa: B027 - most have nothing to release
        """Give back what an attempt that ended by itself still holds."""

    def cpus(self, host: str, devices: Sequence[int]) -> tuple[int, ...]:  # noqa: ARG002
        """The CPUs an attempt is pinned to for some devices of a host; none where the cluster does it."""
        return ()

    def environment(self, host: str, devices: Sequence[int]) -> Mapping[str, str]:  # noqa: ARG002
        """Variables for an attempt on some devices of a host, beyond those every attempt gets."""
        return {}

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Leave the cluster; attempts go on."""


@cache
def executors() -> Registry[type[Executor]]:
    """All kinds of clusters by name."""
    kinds = {
        value
        for module in modules_beside(__name__)
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, Executor) and not inspect.isabstract(value)
    }
    return Registry("backend", sorted(kinds, key=lambda each: each.name), name=lambda each: each.name)


def connect(name: str, fleet: Fleet, options: Mapping[str, str] | None = None) -> Executor:
    """The executor of a name for a fleet; unknown options are errors."""
    kind = executors()[name]
    for option in options or {}:
        if option not in kind.options:
            raise UnknownName(f"option of the backend {kind.name!r}", option, kind.options)
    return kind(fleet, options or {})
