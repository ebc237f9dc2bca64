"""Time gloo's all-reduce between local processes, one on each core: latency, and processor time of a byte.

Each process runs `python -m foretrain.measuring.local_all_reduce RANK WORKERS PORT SIZES`; the first prints
the seconds of each size as JSON.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from foretrain.errors import BackendFailed

SIZES = (4 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20)
"""Bytes of the messages: from latency alone to a bucket of DDP."""
_RUNS, _WARM_UP = 7, 2
_PATIENCE_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class AllReduceTiming:
    """Median seconds of an all-reduce of a message among workers."""

    bytes: int
    workers: int
    seconds: float


def time_all_reduce(workers: int = 2, sizes: Sequence[int] = SIZES) -> tuple[AllReduceTiming, ...]:
    """Seconds of all-reduces between processes of this machine over its loopback interface."""
    port = _free_port()
    command = [sys.executable, "-m", __name__]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(workers), str(port), ",".join(map(str, sizes))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rank in range(workers)
    ]
    try:
        answers = [process.communicate(timeout=_PATIENCE_SECONDS) for process in processes]
    except subprocess.TimeoutExpired as error:
        raise BackendFailed(f"all-reduce did not end within {_PATIENCE_SECONDS:.0f} s") from error
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
    if processes[0].returncode:
        last = (answers[0][1].strip().splitlines() or ["no message"])[-1]
        raise BackendFailed(f"all-reduce between local processes failed: {last}")
    seconds: list[float] = json.loads(answers[0][0].strip().splitlines()[-1])
    return tuple(AllReduceTiming(size, workers, taken) for size, taken in zip(sizes, seconds, strict=True))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _main(rank: int, workers: int, port: int, sizes: Sequence[int]) -> None:
    import torch
    import torch.distributed as dist

    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=workers)
    medians = [_median_seconds(dist, torch.ones(size // 4)) for size in sizes]
    if rank == 0:
        sys.stdout.write(json.dumps(medians) + "\n")
    dist.barrier()
    dist.destroy_process_group()


def _median_seconds(dist: Any, data: Any) -> float:
    taken = []
    for _ in range(_WARM_UP + _RUNS):
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(data)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken[_WARM_UP:])


if __name__ == "__main__":
    _rank, _workers, _port = map(int, sys.argv[1:4])
    _main(_rank, _workers, _port, tuple(map(int, sys.argv[4].split(","))))
