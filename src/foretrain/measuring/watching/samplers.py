"""A thread that samples what process trees use: CPU, memory, disk, network, GPUs.

A process with `RANK` in its environment (torchrun sets it) belongs to that worker; other processes belong to
the tree they descend from, or to the whole node where the tree has ranks (torchrun's own process). The
network interfaces of the namespace that foretrain runs in belong to the node, those of another namespace to
the worker that lives there alone.
"""

from __future__ import annotations

import math
import threading
import time
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple

import numpy as np

from foretrain.measuring.gpus import GpuReader, open_gpus
from foretrain.measuring.stopwatch import busy_cpu_seconds
from foretrain.measuring.watching.processes import (
    InterfaceTraffic,
    Usage,
    WatchedNetwork,
    WatchedProcess,
    descendants,
    environment_of,
    network_namespace,
)
from foretrain.store.runs import NODE, OTHER_PROCESSES, Floats, Resource, ResourceSeries

INTERVAL_SECONDS = 0.05
MOST_SAMPLES = 200_000
"""Nearly three hours at 20 samples a second."""
_QUICK_DISCOVERY_SECONDS = 0.2
"""Workers start within the first seconds; later a look at all processes once a second is enough."""
_SLOW_DISCOVERY_SECONDS = 1.0
_OTHERS_SECONDS = 1.0
"""The kernel counts in ticks of 10 ms; over shorter times the load of others is mostly rounding."""
_YOUNG_SECONDS = 2.0
"""A process that was just forked still shows the environment of its parent: it is looked at again until
then."""
_START_SECONDS = 10.0
"""New processes are looked for often while a job starts, and less often later."""


class Owner(NamedTuple):
    """Whose a sample is: a rank, or where None a tree of processes; `namespace` numbers a foreign network."""

    tree: int
    rank: int | None = None
    namespace: int | None = None


class Key(NamedTuple):
    """What a track of samples is of."""

    resource: Resource
    owner: Owner
    label: str = ""


@dataclass
class _Track:
    """Samples as they arrive."""

    seconds: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def after(self, since: float) -> tuple[Floats, Floats]:
        """Instants and values later than an instant."""
        start = bisect_right(self.seconds, since)
        return np.array(self.seconds[start:]), np.array(self.values[start:])

    def halved(self) -> _Track:
        """Pairs of samples as one: a value is the mean since the instant before."""
        pairs = len(self.seconds) // 2 * 2
        values = (np.array(self.values[0:pairs:2]) + np.array(self.values[1:pairs:2])) / 2
        return _Track(self.seconds[1:pairs:2], array("d", values.tolist()))


@dataclass
class _Member:
    """A process of a tree, when it was first seen, and what it had used at the sample before."""

    process: WatchedProcess
    owner: Owner
    before: Usage
    first_seen: float


@dataclass
class _Network:
    """A network namespace, the owners of the processes in it by id, and its counters a sample before."""

    counters: WatchedNetwork
    namespace: int | None
    owners: dict[int, Owner]
    before: dict[str, InterfaceTraffic]


class _OtherProcesses:
    """Cores that processes other than the watched ones keep busy, about once a second."""

    def __init__(self) -> None:
        self.own_cpu_seconds = 0.0
        self._at, self._busy, self._own = time.monotonic(), busy_cpu_seconds(), 0.0

    def cores(self, now: float) -> float | None:
        """The mean since the last value; None where that is less than a second ago."""
        elapsed = now - self._at
        if elapsed < _OTHERS_SECONDS:
            return None
        busy, own = busy_cpu_seconds(), self.own_cpu_seconds
        used = (busy - self._busy) - (own - self._own)
        self._at, self._busy, self._own = now, busy, own
        return max(0.0, used / elapsed)


class Sampler:
    """Samples process trees, their networks and the GPUs of this node until it is closed.

        with Sampler(pids=(process.pid,)) as sampler:
            process.wait()
        series = sampler.series()

    `origin` is the instant of `time.monotonic()` that counts as second 0 (default: now). After
    `most_samples` of a series, pairs of samples are averaged and the interval is doubled, so that days of
    training fit into memory. With `watch_others`, what all other processes of the machine use is sampled
    once a second as well.
    """

    def __init__(
        self,
        pids: Sequence[int],
        interval_seconds: float = INTERVAL_SECONDS,
        *,
        origin: float | None = None,
        most_samples: int = MOST_SAMPLES,
        gpus: Callable[[], GpuReader | None] = open_gpus,
        watch_others: bool = False,
    ) -> None:
        self._pids = tuple(pids)
        self._interval = interval_seconds
        self._origin = time.monotonic() if origin is None else origin
        self._most_samples = most_samples
        self._open_gpus = gpus
        self._gpus: GpuReader | None = None
        self._others = _OtherProcesses() if watch_others else None
        self._members: dict[int, _Member] = {}
        self._networks: dict[int, _Network] = {}
        self._tracks: dict[Key, _Track] = {}
        self._assigned: dict[int, int] = {}
        self._own_namespace = network_namespace()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_closed, name="sampler", daemon=True)

    def __enter__(self) -> Sampler:
        self._gpus = self._open_gpus()
        self.discover()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._thread.join()
        for member in self._members.values():
            member.process.close()
        for network in self._networks.values():
            network.counters.close()
        if self._gpus is not None:
            self._gpus.close()

    def series(self, since: float = -math.inf) -> tuple[ResourceSeries, ...]:
        """All samples so far, or those after an instant. Interfaces that carried nothing are left out."""
        with self._lock:
            tracks = {key: track.after(since) for key, track in self._tracks.items()}
            alone = {
                network.namespace: _worker_alone(network.owners.values())
                for network in self._networks.values()
            }
        silent = {(key.owner, key.label) for key in tracks if key.resource in _NETWORK} - {
            (key.owner, key.label)
            for key, (_, values) in tracks.items()
            if key.resource in _NETWORK and values.any()
        }
        ranked = {key.owner.tree for key in tracks if key.owner.rank is not None}
        return tuple(
            ResourceSeries(
                resource=key.resource,
                worker=_worker(key, ranked, alone),
                seconds=seconds,
                values=values,
                label=_label(key, alone),
            )
            for key, (seconds, values) in sorted(tracks.items(), key=lambda item: _order(item[0]))
            if key.resource not in _NETWORK or (key.owner, key.label) not in silent
        )

    def _sample_until_closed(self) -> None:
        start = before = time.monotonic()
        due, discovery = start + self._interval, start
        while not self._closing.wait(max(0.0, due - time.monotonic())):
            now = time.monotonic()
            if now - discovery >= (
                _QUICK_DISCOVERY_SECONDS if now - start < _START_SECONDS else _SLOW_DISCOVERY_SECONDS
            ):
                self.discover()
                discovery = now
            self.sample(now, now - before)
            before = now
            due = max(due + self._interval, now)  # a late sample does not make the next ones come in a row

    def sample(self, now: float, elapsed: float) -> None:
        """Take one sample at an instant, `elapsed` seconds after the one before."""
        samples = [*self._process_samples(elapsed), *self._network_samples(elapsed)]
        if self._gpus is not None:
            samples += (
                (Key(which, _NODE_OWNER, label), value) for which, label, value in self._gpus.samples()
            )
        if self._others is not None:
            cores = self._others.cores(now)
            samples += [] if cores is None else [(Key(Resource.CPU, _NODE_OWNER, OTHER_PROCESSES), cores)]
        second = now - self._origin
        with self._lock:
            for key, value in samples:
                track = self._tracks.get(key)
                if track is None:
                    track = self._tracks[key] = _Track()
                track.seconds.append(second)
                track.values.append(value)
            if any(len(track.seconds) > self._most_samples for track in self._tracks.values()):
                self._tracks = {key: track.halved() for key, track in self._tracks.items()}
                self._interval *= 2

    def _process_samples(self, elapsed: float) -> Iterable[tuple[Key, float]]:
        totals: dict[Owner, list[float]] = {}
        ended = []
        for pid, member in self._members.items():
            try:
                usage = member.process.usage()
            except (ProcessLookupError, IndexError):
                ended.append(pid)
                continue
            before, member.before = member.before, usage
            total = totals.setdefault(member.owner, [0.0, 0.0, 0.0, 0.0])
            used = usage.cpu_seconds - before.cpu_seconds
            if self._others is not None:
                self._others.own_cpu_seconds += used
            total[0] += used / elapsed
            total[1] += usage.memory_bytes
            total[2] += (usage.read_bytes - before.read_bytes) / elapsed
            total[3] += (usage.written_bytes - before.written_bytes) / elapsed
        for pid in ended:
            self._members.pop(pid).process.close()
        return (
            (Key(resource, owner), value)
            for owner, total in totals.items()
            for resource, value in zip(_OF_A_PROCESS, total, strict=True)
        )

    def _network_samples(self, elapsed: float) -> Iterable[tuple[Key, float]]:
        for network in self._networks.values():
            traffic = network.counters.traffic()
            before, network.before = network.before, traffic
            owner = Owner(NODE, None, network.namespace)
            for name, after in traffic.items():
                start = before.get(name, after)
                sent = (after.transmitted_bytes - start.transmitted_bytes) / elapsed
                received = (after.received_bytes - start.received_bytes) / elapsed
                yield Key(Resource.TRANSMIT, owner, name), sent
                yield Key(Resource.RECEIVE, owner, name), received

    def assign(self, pid: int, rank: int) -> None:
        """Attribute a process to a worker whose rank its environment does not show."""
        with self._lock:
            self._assigned[pid] = rank

    def discover(self) -> None:
        """Add the processes that were started since the last look, and look again at young ones.

        A process that was just forked still has the environment and the network of its parent.
        """
        now = time.monotonic()
        for tree, root in enumerate(self._pids):
            for pid in descendants(root):
                member = self._members.get(pid)
                if member is not None and now - member.first_seen > _YOUNG_SECONDS:
                    continue
                try:
                    self._add(tree, pid, member, now)
                except (ProcessLookupError, PermissionError, IndexError):  # it has ended already
                    continue

    def _add(self, tree: int, pid: int, member: _Member | None, now: float) -> None:
        owner = Owner(tree, self._assigned.get(pid, _rank(environment_of(pid).get("RANK"))))
        if member is None:
            process = WatchedProcess(pid)
            self._members[pid] = _Member(process, owner, process.usage(), now)
        else:
            member.owner = owner
        self._join_network(pid, owner)

    def _join_network(self, pid: int, owner: Owner) -> None:
        try:
            number = network_namespace(pid)
        except OSError:
            return
        network = self._networks.get(number)
        for other in self._networks.values():
            if other is not network:
                other.owners.pop(pid, None)
        if network is None:
            counters = WatchedNetwork(pid)
            foreign = None if number == self._own_namespace else len(self._networks)
            network = _Network(counters, foreign, {}, counters.traffic())
            self._networks[number] = network
        network.owners[pid] = owner


_NODE_OWNER = Owner(NODE)
_OF_A_PROCESS = (Resource.CPU, Resource.MEMORY, Resource.DISK_READ, Resource.DISK_WRITE)
_NETWORK = (Resource.TRANSMIT, Resource.RECEIVE)


def _rank(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _worker_alone(owners: Iterable[Owner]) -> int | None:
    """The only worker among the processes of a namespace; None where there are several."""
    listed = list(owners)
    workers = {owner.rank for owner in listed if owner.rank is not None} or {owner.tree for owner in listed}
    return next(iter(workers)) if len(workers) == 1 else None


def _worker(key: Key, ranked: set[int], alone: dict[int | None, int | None]) -> int:
    owner = key.owner
    if owner.rank is not None:
        return owner.rank
    if owner.tree == NODE:
        worker = alone.get(owner.namespace) if owner.namespace is not None else None
        return NODE if worker is None else worker
    return NODE if owner.tree in ranked else owner.tree


def _label(key: Key, alone: dict[int | None, int | None]) -> str:
    namespace = key.owner.namespace
    if namespace is None or alone.get(namespace) is not None:
        return key.label
    return f"{key.label}@{namespace}"


def _order(key: Key) -> tuple[int, int, int, int, str]:
    """By resource, then by owner."""
    owner = key.owner
    numbers = (-1 if number is None else number for number in (owner.rank, owner.namespace))
    rank, namespace = numbers
    return list(Resource).index(key.resource), owner.tree, rank, namespace, key.label
