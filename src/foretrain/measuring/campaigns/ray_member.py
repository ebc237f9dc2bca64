"""One worker of a trial on a Ray cluster, or its parameter server: what runs in an actor."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass, replace
from typing import Any

from foretrain.measuring.distributed_trials.member import Settings, do, join
from foretrain.measuring.environment import this_environment
from foretrain.measuring.watching.samplers import Sampler
from foretrain.store.runs import Environment, Series

_INTERVAL_SECONDS = 0.05


@dataclass(frozen=True, eq=False)
class Report:
    """What a worker did: the answer to its task, when it began on its clock, and what it used."""

    answer: dict[str, Any]
    origin: float
    series: tuple[Series, ...]
    environment: Environment


class RayMember:
    """The actor. Ray calls its methods one after the other."""

    def __init__(self) -> None:
        self._settings: Settings | None = None
        self._sampler: Sampler | None = None

    def place(self) -> tuple[str, str, int]:
        """The id of its node, its address there, and the first of two free ports."""
        import ray

        return ray.get_runtime_context().get_node_id(), _own_address(), _two_free_ports()

    def join(self, settings: Settings) -> None:
        """Join the other workers."""
        self._settings = replace(settings, interface=_interface_of(_own_address()))
        join(self._settings)

    def train(self, task: dict[str, Any]) -> Report:
        """Do the task and watch this process meanwhile; a task that fails is answered with `error`."""
        assert self._settings is not None
        origin = time.monotonic()
        with Sampler((os.getpid(),), _INTERVAL_SECONDS, origin=origin) as sampler:
            answer = do(task, self._settings)
        return Report(answer, origin, sampler.series(), this_environment())

    def watch(self) -> None:
        """Begin to watch this process: a server works without being asked."""
        self._sampler = Sampler((os.getpid(),), _INTERVAL_SECONDS)
        self._sampler.__enter__()

    def watched(self) -> Report:
        """End it, and report."""
        assert self._sampler is not None
        self._sampler.__exit__(None, None, None)
        return Report({}, 0.0, self._sampler.series(), this_environment())


def _own_address() -> str:
    """The address of this node in the cluster."""
    from ray import util

    return str(util.get_node_ip_address())  # type: ignore[no-untyped-call]


def _two_free_ports() -> int:
    """The first of two neighbouring ports that no one listens on."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("", 0))
            port: int = first.getsockname()[1]
            try:
                second.bind(("", port + 1))
            except (OSError, OverflowError):
                continue
            return port


def _interface_of(address: str) -> str:
    """The network interface that has an address."""
    import psutil

    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address == address for each in addresses):
            return str(name)
    return "lo"
