"""What runs in each worker: `python -m foretrain.measuring.distributed_trials.member SETTINGS`.

Joins its group, then does the tasks that come as lines of JSON on standard input and answers each with a
line on standard output, until the input ends. The member after the last worker is the parameter server.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from foretrain.measuring.namespaces import INTERFACE

_PATIENCE_SECONDS = 120.0
TRIALS = {
    "solo": ("training", "train_alone"),
    "ddp": ("training", "train_ddp"),
    "fsdp": ("training", "train_fsdp"),
    "pipeline": ("training", "train_pipeline"),
    "parameter_server": ("parameter_server", "run"),
    "copies": ("benchmarks", "time_copies"),
    "collectives": ("benchmarks", "time_collectives"),
}
"""Module and function of each trial. They need torch, so they are imported where they run."""


@dataclass(frozen=True)
class Settings:
    """Which of how many workers this is, on which core, and where the first one listens."""

    rank: int
    workers: int
    address: str
    port: int
    core: int | None

    @property
    def is_server(self) -> bool:
        """Whether this is the parameter server."""
        return self.rank == self.workers

    def as_argument(self) -> str:
        """As the member's command line has it."""
        return json.dumps(asdict(self))


def main() -> None:
    """Join, work, leave."""
    settings = Settings(**json.loads(sys.argv[1]))
    os.environ |= {"GLOO_SOCKET_IFNAME": INTERFACE, "TP_SOCKET_IFNAME": INTERFACE}
    os.environ |= {"MASTER_ADDR": settings.address, "MASTER_PORT": str(settings.port)}
    if settings.core is not None:
        os.sched_setaffinity(0, {settings.core})
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes to the log
    _join(settings)
    answers.write("ready\n")
    answers.flush()
    for line in sys.stdin:
        answer = _do(json.loads(line), settings)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    os._exit(0)  # groups and servers end with the process: there is nothing to say good-bye for


def _join(settings: Settings) -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed import rpc

    torch.set_num_threads(1)
    patience = timedelta(seconds=_PATIENCE_SECONDS)
    url = f"tcp://{settings.address}"
    if not settings.is_server:
        dist.init_process_group(
            "gloo",
            init_method=f"{url}:{settings.port}",
            rank=settings.rank,
            world_size=settings.workers,
            timeout=patience,
        )
    from foretrain.measuring.distributed_trials.parameter_server import SERVER

    options = rpc.TensorPipeRpcBackendOptions(
        init_method=f"{url}:{settings.port + 1}",
        rpc_timeout=_PATIENCE_SECONDS,
        num_worker_threads=8,
        _transports=["uv"],
        _channels=["basic"],
    )
    name = SERVER if settings.is_server else f"worker{settings.rank}"
    rpc.init_rpc(name, rank=settings.rank, world_size=settings.workers + 1, rpc_backend_options=options)


def _do(task: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """Do one task, if it is this member's; a server serves by itself and has none."""
    if settings.is_server or settings.rank not in task.get("ranks", range(settings.workers)):
        return {}
    module, function = TRIALS[task["trial"]]
    trial = getattr(importlib.import_module(f"foretrain.measuring.distributed_trials.{module}"), function)
    result: dict[str, Any] = trial(task)
    return result


if __name__ == "__main__":
    main()
