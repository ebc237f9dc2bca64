"""What runs in each worker: `python -m foretrain.measuring.distributed_trials.member SETTINGS`.

Joins its group, then does the tasks that come as lines of JSON on standard input and answers each with a
line on standard output, until the input ends. A task that fails is answered with `error`. The member after
the last worker is the parameter server. Members end with the process that started them, however that ends.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from foretrain.measuring.distributed_trials.namespaces import INTERFACE

_PATIENCE_SECONDS = 120.0
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)
TRAIN = "foretrain.measuring.distributed_trials.training:train"
"""The trial of a campaign."""
OUT_OF_MEMORY = "out of memory"
FAILED = "failed"


@dataclass(frozen=True)
class MemberSettings:
    """Which of how many workers this is, on which core, and where the first one listens.

    Without `has_server` the workers have no parameter server.
    """

    rank: int
    workers: int
    address: str
    port: int
    core: int | None
    interface: str = INTERFACE
    has_server: bool = True

    @property
    def is_server(self) -> bool:
        """Whether this is the parameter server."""
        return self.rank == self.workers

    def as_argument(self) -> str:
        """As the member's command line has it."""
        return json.dumps(asdict(self))


def main() -> None:
    """Join, work, leave."""
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    settings = MemberSettings(**json.loads(sys.argv[1]))
    if settings.core is not None:
        os.sched_setaffinity(0, {settings.core})
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes to the log
    join(settings)
    answers.write("ready\n")
    answers.flush()
    for line in sys.stdin:
        answer = do(json.loads(line), settings)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    os._exit(0)  # groups and servers end with the process: there is nothing to say good-bye for


def join(settings: MemberSettings) -> None:
    """Join the group of workers, and the server."""
    os.environ |= {"GLOO_SOCKET_IFNAME": settings.interface, "TP_SOCKET_IFNAME": settings.interface}
    os.environ |= {"MASTER_ADDR": settings.address, "MASTER_PORT": str(settings.port)}
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
    if not settings.has_server:
        return
    from foretrain.measuring.distributed_trials.training import SERVER

    options = rpc.TensorPipeRpcBackendOptions(
        init_method=f"{url}:{settings.port + 1}",
        rpc_timeout=_PATIENCE_SECONDS,
        num_worker_threads=8,
        _transports=["uv"],
        _channels=["basic"],
    )
    name = SERVER if settings.is_server else f"worker{settings.rank}"
    rpc.init_rpc(name, rank=settings.rank, world_size=settings.workers + 1, rpc_backend_options=options)


def do(task: dict[str, Any], settings: MemberSettings) -> dict[str, Any]:
    """Do one task, if it is this member's; a server serves by itself and has none.

    `trial` of a task is the place of a function, as `package.module:function`.
    The answer of a task that failed has the keys `error` and `kind`; `memory_bytes` of a task is the limit of
    the memory that this process may allocate meanwhile.
    """
    if settings.is_server or settings.rank not in task.get("ranks", range(settings.workers)):
        return {}
    try:
        module, _, function = task["trial"].partition(":")  # trials need torch: imported where they run
        trial = getattr(importlib.import_module(module), function)
        with memory_limit(task.get("memory_bytes")):
            result: dict[str, Any] = trial(task)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        return {"error": f"{type(error).__name__}: {error}", "kind": _kind(error)}
    return result


@contextmanager
def memory_limit(limit_bytes: float | None) -> Iterator[None]:
    """Let allocations beyond a limit of this process's own data fail."""
    if limit_bytes is None:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (int(limit_bytes), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _kind(error: BaseException) -> str:
    return OUT_OF_MEMORY if isinstance(error, MemoryError) or lacks_memory(str(error)) else FAILED


def lacks_memory(text: str) -> bool:
    """Whether a message is that of an allocator that found no memory."""
    return any(phrase in text for phrase in ("can't allocate memory", "bad_alloc", "Cannot allocate memory",
                                             "out of memory", "not enough memory"))  # fmt: skip


if __name__ == "__main__":
    main()
