"""Trials on a Ray cluster: the workers of a trial, and its parameter server, are actors spread over nodes.

The driver plans, predicts and stores; the cluster only trains. As many trials run at once as its CPUs allow.
A trial that lost a node is run again elsewhere. The network is that of the cluster: nothing limits its rate,
and a `network` in the campaign file only describes it for the prediction.
"""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Self

from foretrain.errors import BackendFailed, InvalidRequest, MissingData
from foretrain.measuring.campaigns.campaign import Campaign
from foretrain.measuring.campaigns.local import run_command, task_of
from foretrain.measuring.campaigns.trials import Trial, TrialOutcome, TrialRunner, trials_of, worker_steps
from foretrain.measuring.distributed_trials.crew import TIMED_OUT, WorkerFailed
from foretrain.measuring.distributed_trials.member import (
    FAILED,
    OUT_OF_MEMORY,
    TRAIN,
    MemberSettings,
    do,
    join,
    lacks_memory,
)
from foretrain.measuring.this_machine import this_environment
from foretrain.measuring.watching.samplers import Sampler
from foretrain.store.runs import NODE, Environment, ResourceSeries, Status

_START_SECONDS = 120.0
"""Within this time the actors of a trial must have started and joined."""
_DEATH_SECONDS = 12.0
"""Within this time after a worker failed, Ray reports the death of its node."""
_TURN_SECONDS = 0.5
_INTERVAL_SECONDS = 0.05
_ATTEMPTS = 3
"""A trial whose node is lost runs again on another, but not for ever."""
_ADDRESS_OF_INTERFACE = 0x8915  # SIOCGIFADDR of netdevice(7); the address is at 20 of the answer


class NodeLost(Exception):
    """A node of the cluster ended while a trial ran on it."""


class RayRunner(TrialRunner):
    """Runs trials on the Ray cluster at `address`; None is the cluster of this machine's environment."""

    def __init__(self, campaign: Campaign, address: str | None = None) -> None:
        try:
            import ray
        except ModuleNotFoundError as error:
            raise MissingData("Ray is not installed here: pip install foretrain[ray]") from error
        self._ray: Any = ray
        self._address = address
        self._needed = max(_processes(trial) for trial in trials_of(campaign))
        self._connected = False
        networks = {name for axes in (campaign, *campaign.models) for name in axes.network or ()}
        if len(networks) > 1:
            raise InvalidRequest(
                f"`network` has {len(networks)} rates; on Ray nothing limits the network: give one that "
                "describes the cluster, or run the campaign on this machine"
            )

    def __enter__(self) -> Self:
        if not self._ray.is_initialized():
            try:
                self._ray.init(address=self._address, log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise BackendFailed(f"cannot reach the Ray cluster {self._address or ''}: {error}") from error
            self._connected = True
        cores = int(self._ray.cluster_resources().get("CPU", 0))
        if cores < self._needed:
            raise InvalidRequest(f"a trial needs {self._needed} CPUs, but the Ray cluster has {cores}")
        self.slots = cores // self._needed
        return self

    def close(self, *, failed: bool) -> None:  # noqa: ARG002 - Ray ends what is left
        """Leave the cluster."""
        if self._connected:
            self._ray.shutdown()

    def run(self, trial: Trial) -> TrialOutcome:
        """Run a trial, again where a node was lost."""
        started_at, start = datetime.now(UTC), time.monotonic()
        message = ""
        for _ in range(_ATTEMPTS):
            started_at, start = datetime.now(UTC), time.monotonic()
            try:
                return self._command(trial) if trial.command is not None else self._trained(trial, started_at)
            except NodeLost as lost:
                message = str(lost)
        return _failure(trial, Status.FAILED, f"{message}, {_ATTEMPTS} times", started_at, start)

    def _command(self, trial: Trial) -> TrialOutcome:
        """The command as one task."""
        task = self._ray.remote(run_command).options(num_cpus=trial.workers, max_retries=0)
        try:
            outcome: TrialOutcome = self._ray.get(task.remote(trial))
        except (self._ray.exceptions.WorkerCrashedError, self._ray.exceptions.NodeDiedError) as error:
            raise NodeLost(f"the worker of a task was lost: {error}") from error
        return outcome

    def _trained(self, trial: Trial, started_at: datetime) -> TrialOutcome:
        from ray.util import placement_group, remove_placement_group

        start = time.monotonic()
        group = placement_group([{"CPU": 1}] * _processes(trial), strategy="SPREAD")
        actors: list[Any] = []
        nodes: set[str] = set()
        try:
            self._await_placement(group, _processes(trial))
            actors = [self._actor(group, index) for index in range(_processes(trial))]
            places = self._get([actor.place.remote() for actor in actors], _START_SECONDS)
            nodes |= {place[0] for place in places}
            return self._with_actors(trial, actors, places, started_at)
        except (WorkerFailed, self._ray.exceptions.RayError) as failure:
            errors = self._ray.exceptions
            if isinstance(failure, errors.ActorUnavailableError | errors.NodeDiedError):
                raise NodeLost("a worker of the Ray cluster cannot be reached any more") from failure
            failed = _as_failure(failure)
            patience = {FAILED: _DEATH_SECONDS, TIMED_OUT: 0.0}
            if failed.kind in patience and self._lost_a_node(nodes, patience[failed.kind]):
                raise NodeLost("a node of the Ray cluster was lost") from failure
            return _failure(trial, Status(failed.kind), str(failed), started_at, start)
        finally:
            for actor in actors:
                self._ray.kill(actor)
            remove_placement_group(group)

    def _with_actors(
        self,
        trial: Trial,
        actors: Sequence[Any],
        places: Sequence[tuple[str, str, int]],
        started_at: datetime,
    ) -> TrialOutcome:
        has_server = len(actors) > trial.workers
        _, address, port = places[0]
        settings = [
            MemberSettings(rank, trial.workers, address, port, None, has_server=has_server)
            for rank in range(len(actors))
        ]
        pairs = zip(actors, settings, strict=True)
        self._get([actor.join.remote(each) for actor, each in pairs], _START_SECONDS)
        servers = actors[trial.workers :]
        self._get([actor.watch.remote() for actor in servers], _START_SECONDS)
        task = {"trial": TRAIN, **task_of(trial)}
        start = time.monotonic()
        reports: list[MemberReport] = self._get(
            [actor.train.remote(task) for actor in actors[: trial.workers]], trial.timeout
        )
        seconds = time.monotonic() - start
        reports += self._get([actor.watched.remote() for actor in servers], _START_SECONDS)
        return TrialOutcome(
            status=Status.COMPLETED,
            started_at=started_at,
            seconds=seconds,
            environment=_environment(reports, places, trial.workers),
            steps=_steps(reports, places, trial.workers),
            series=tuple(_series(reports, places, trial.workers)),
        )

    def _actor(self, group: Any, index: int) -> Any:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        strategy = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=index)
        options = {"num_cpus": 1, "max_restarts": 0, "scheduling_strategy": strategy}
        return self._ray.remote(RayMember).options(**options).remote()

    def _get(self, references: list[Any], seconds: float) -> list[Any]:
        """The results of calls; the first that fails is raised at once, and so is the end of the time."""
        deadline = time.monotonic() + seconds
        waiting = list(references)
        while waiting:
            left = max(0.0, deadline - time.monotonic())
            done, waiting = self._ray.wait(waiting, timeout=left)
            for result in self._ray.get(done):
                if isinstance(result, MemberReport) and "error" in result.answer:
                    raise WorkerFailed(result.answer["error"], result.answer["kind"])
            if waiting and not done:
                raise WorkerFailed(f"the workers did not answer within {seconds:g} s", TIMED_OUT)
        results: list[Any] = self._ray.get(references)
        return results

    def _await_placement(self, group: Any, processes: int) -> None:
        """Wait for free CPUs: other trials may hold them, and a lost node may never come back."""
        ready = group.ready()
        while not self._ray.wait([ready], timeout=_TURN_SECONDS)[0]:
            cores = self._ray.cluster_resources().get("CPU", 0)
            if cores < processes:
                raise NodeLost(f"a trial needs {processes} CPUs, and the Ray cluster has {cores:g} left")

    def _lost_a_node(self, nodes: set[str], patience: float) -> bool:
        """Whether one of these nodes has ended; Ray needs some seconds to notice."""
        deadline = time.monotonic() + patience
        while True:
            alive = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}
            if not nodes <= alive:
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(_TURN_SECONDS)


def _processes(trial: Trial) -> int:
    """Workers, and the parameter server where the strategy has one."""
    return trial.workers + (trial.command is None and trial.servers is not None)


def _as_failure(error: Exception) -> WorkerFailed:
    if isinstance(error, WorkerFailed):
        return error
    text = str(error)
    kind = OUT_OF_MEMORY if lacks_memory(text) or "OutOfMemory" in type(error).__name__ else FAILED
    return WorkerFailed(f"{type(error).__name__}: {text.strip().splitlines()[0]}", kind)


def _failure(trial: Trial, status: Status, message: str, started_at: datetime, start: float) -> TrialOutcome:
    return TrialOutcome(
        status=status,
        started_at=started_at,
        seconds=time.monotonic() - start,
        environment=replace(this_environment(), nodes=trial.workers, devices_per_node=1),
        message=message,
    )


def _node_indices(places: Sequence[tuple[str, str, int]]) -> list[int]:
    """For each process the number of its node."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(node, len(numbers)) for node, _, _ in places]


def _environment(
    reports: Sequence[MemberReport], places: Sequence[tuple[str, str, int]], workers: int
) -> Environment:
    nodes = len(set(_node_indices(places)[:workers]))
    return replace(reports[0].environment, nodes=nodes, devices_per_node=-(-workers // nodes))


def _steps(reports: Sequence[MemberReport], places: Sequence[tuple[str, str, int]], workers: int) -> Any:
    """Steps of every worker since it began: clocks of nodes differ."""
    indices = _node_indices(places)
    return tuple(
        replace(worker_steps([report.answer], report.origin)[0], worker=rank, node=indices[rank])
        for rank, report in enumerate(reports[:workers])
    )


def _series(
    reports: Sequence[MemberReport], places: Sequence[tuple[str, str, int]], workers: int
) -> list[ResourceSeries]:
    """What each process used, and the network of each node once."""
    indices = _node_indices(places)
    kept = []
    for rank, report in enumerate(reports):
        is_first = indices.index(indices[rank]) == rank
        for each in report.series:
            if each.worker == NODE and is_first:
                kept.append(replace(each, node=indices[rank]))
            elif each.worker != NODE:
                label = "server" if rank == workers else each.label
                kept.append(replace(each, worker=rank, node=indices[rank], label=label))
    return kept


@dataclass(frozen=True, eq=False)
class MemberReport:
    """What a worker did: the answer to its task, when it began on its clock, and what it used."""

    answer: dict[str, Any]
    origin: float
    series: tuple[ResourceSeries, ...]
    environment: Environment


class RayMember:
    """The actor. Ray calls its methods one after the other."""

    def __init__(self) -> None:
        self._settings: MemberSettings | None = None
        self._sampler: Sampler | None = None

    def place(self) -> tuple[str, str, int]:
        """The id of its node, its address there, and the first of two free ports."""
        import ray

        return ray.get_runtime_context().get_node_id(), _own_address(), _two_free_ports()

    def join(self, settings: MemberSettings) -> None:
        """Join the other workers."""
        self._settings = replace(settings, interface=interface_of(_own_address()))
        join(self._settings)

    def train(self, task: dict[str, Any]) -> MemberReport:
        """Do the task and watch this process meanwhile; a task that fails is answered with `error`."""
        assert self._settings is not None
        origin = time.monotonic()
        with Sampler((os.getpid(),), _INTERVAL_SECONDS, origin=origin) as sampler:
            answer = do(task, self._settings)
        return MemberReport(answer, origin, sampler.series(), this_environment())

    def watch(self) -> None:
        """Begin to watch this process: a server works without being asked."""
        self._sampler = Sampler((os.getpid(),), _INTERVAL_SECONDS)
        self._sampler.__enter__()

    def watched(self) -> MemberReport:
        """End it, and report."""
        assert self._sampler is not None
        self._sampler.__exit__(None, None, None)
        return MemberReport({}, 0.0, self._sampler.series(), this_environment())


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


def interface_of(address: str) -> str:
    """The network interface that has an address, the loopback where none has it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode())
            with suppress(OSError):  # an interface without an IPv4 address
                answer = fcntl.ioctl(any_socket.fileno(), _ADDRESS_OF_INTERFACE, request)
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    return "lo"
