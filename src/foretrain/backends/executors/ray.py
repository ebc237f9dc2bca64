"""A Ray cluster: an attempt is a placement group with an actor on each of its nodes, both named by its key.

Groups and actors are detached: they outlive foretrain, and the next one finds them by name. A host is a node
of the cluster by its name, or by its id where several nodes have the same name. The folder of the schedule
has to be on a file system that all nodes share.
"""

from __future__ import annotations

import logging
import os
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from foretrain.backends.executors._base import Attempt, Executor, Handle, Host
from foretrain.errors import BackendFailed, MissingData
from foretrain.scheduling.problem import Fleet

_NAMESPACE = "foretrain"
_NODE_ID = "ray.io/node-id"
"""The label that every node of a Ray cluster carries."""


class Keeper:
    """The actor on a node: it starts the supervisor there, which ends with it.

    A supervisor that is killed takes the actor along: Ray then forgets its name, and the attempt is lost.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        threading.Thread(target=self._end_with_it, daemon=True).start()

    def _end_with_it(self) -> None:
        if self._process.wait() < 0:
            os._exit(1)

    def process_id(self) -> int:
        """Of the supervisor."""
        return self._process.pid


class RayExecutor(Executor):
    """Placement groups and actors of Ray."""

    name = "ray"
    summary = "Placement groups on a Ray cluster."
    follows_parent = True
    options: ClassVar[Mapping[str, str]] = {
        "address": "address of the cluster (default: RAY_ADDRESS, else the cluster on this machine)"
    }

    def __init__(self, fleet: Fleet, options: Mapping[str, str]) -> None:
        del fleet
        try:
            import ray
        except ModuleNotFoundError as error:
            raise MissingData("Ray is not installed here: pip install foretrain[ray]") from error
        self._ray: Any = ray
        self._connected = False
        if not ray.is_initialized():
            with _as_failure("cannot reach the Ray cluster"):
                ray.init(
                    address=options.get("address", "auto"),
                    namespace=_NAMESPACE,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                )
            self._connected = True

    def hosts(self) -> tuple[Host, ...]:
        """The nodes of the cluster, dead ones too."""
        with _as_failure("the Ray cluster does not answer"):
            nodes = self._ray.nodes()
        shared = Counter(node["NodeName"] for node in nodes if node["Alive"])
        hosts: dict[str, Host] = {}
        for node in nodes:
            name = node["NodeName"] if shared[node["NodeName"]] <= 1 else node["NodeID"]
            gpus = int(node["Resources"].get("GPU", 0))
            if name not in hosts or node["Alive"]:
                hosts[name] = Host(name, gpus, bool(node["Alive"]))
        return tuple(hosts[name] for name in sorted(hosts))

    def start(self, attempt: Attempt) -> Handle:
        """Reserve the GPUs of each node, and start an actor there; both may have to wait."""
        from ray.util import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        ids = self._node_ids(attempt.hosts)
        with _as_failure("Ray did not start the attempt"):
            group = placement_group(
                [{"GPU": attempt.gpus}] * len(ids),
                strategy="PACK" if len(ids) == 1 else "STRICT_SPREAD",
                name=attempt.key,
                lifetime="detached",
                bundle_label_selector=[{_NODE_ID: each} for each in ids],
            )
            for rank in range(len(ids)):
                self._ray.remote(Keeper).options(
                    name=f"{attempt.key}/{rank}",
                    namespace=_NAMESPACE,
                    lifetime="detached",
                    num_cpus=0,
                    num_gpus=attempt.gpus,
                    max_restarts=0,
                    scheduling_strategy=PlacementGroupSchedulingStrategy(
                        placement_group=group, placement_group_bundle_index=rank
                    ),
                ).remote(attempt.command(rank))
        return {"ranks": len(ids)}

    def _node_ids(self, hosts: Sequence[str]) -> list[str]:
        alive = {}
        for node in self._ray.nodes():
            if node["Alive"]:
                alive[node["NodeName"]] = alive[node["NodeID"]] = node["NodeID"]
        gone = [host for host in hosts if host not in alive]
        if gone:
            raise BackendFailed(f"node {gone[0]} is no longer part of the Ray cluster")
        return [alive[host] for host in hosts]

    def find(self, attempt: Attempt) -> Handle | None:
        """By the names of its actors."""
        ranks = len(attempt.hosts)
        is_there = any(self._actor(attempt.key, rank) is not None for rank in range(ranks))
        return {"ranks": ranks} if is_there else None

    def alive(self, handles: Mapping[str, Handle]) -> frozenset[str]:
        """Those whose actors wait or run; Ray forgets the name of one that ended."""
        return frozenset(
            key
            for key, handle in handles.items()
            if all(self._actor(key, rank) is not None for rank in range(handle["ranks"]))
        )

    def kill(self, key: str, handle: Handle) -> None:
        """End the actors, and their supervisors with them; give the GPUs back."""
        from ray.util import get_placement_group, remove_placement_group

        with _as_failure("Ray did not end the attempt"):
            for rank in range(handle["ranks"]):
                actor = self._actor(key, rank)
                if actor is not None:
                    self._ray.kill(actor)
            try:
                remove_placement_group(get_placement_group(key))
            except ValueError:  # it is gone already
                return

    def release(self, key: str, handle: Handle) -> None:
        """The actors outlive their supervisors."""
        self.kill(key, handle)

    def close(self) -> None:
        """Leave the cluster."""
        if self._connected:
            self._ray.shutdown()

    def _actor(self, key: str, rank: int) -> Any:
        with _as_failure("the Ray cluster does not answer"):
            try:
                return self._ray.get_actor(f"{key}/{rank}", namespace=_NAMESPACE)
            except ValueError:
                return None


@contextmanager
def _as_failure(what: str) -> Iterator[None]:
    """Errors of Ray as one of ours."""
    try:
        yield
    except (ConnectionError, RuntimeError, OSError) as error:
        raise BackendFailed(
            f"{what}: {str(error).strip().splitlines()[0] if str(error) else error!r}"
        ) from error
