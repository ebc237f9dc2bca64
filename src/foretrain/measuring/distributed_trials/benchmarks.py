"""Micro-benchmarks of a worker: copies within memory, and collectives between the workers, by size.

Copies are what strategies make around their communication. Their processor time is not lengthened by other
processes on the machine.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from foretrain.measuring.distributed_trials.models import repeat
from foretrain.measuring.distributed_trials.parameter_server import exchange, serve_echo

BENCHMARK_WARM_UP = 2


def warm_seconds(call: Callable[[int], object], runs: int) -> float:
    """The median over `runs` after a warm-up; `call` gets the number of the run."""
    taken = []
    for turn in range(BENCHMARK_WARM_UP + runs):
        start = time.process_time()
        call(turn)
        taken.append(time.process_time() - start)
    return statistics.median(taken[BENCHMARK_WARM_UP:])


def time_copies(task: dict[str, Any]) -> dict[str, Any]:
    """Processor seconds to copy, to copy into newly allocated memory, and to add tensors of `bytes`."""
    elements = int(task["bytes"]) // 4
    sources = [torch.ones(elements) for _ in range(3)]
    target = torch.empty(elements)
    kinds: dict[str, Callable[[int], object]] = {
        "copy": lambda turn: target.copy_(sources[turn % 3]),
        "clone": lambda turn: sources[turn % 3].clone(),
        "add": lambda turn: target.add_(sources[turn % 3]),
    }
    return {name: warm_seconds(call, int(task["runs"])) for name, call in kinds.items()}


_FEWEST, _MOST = 3, 40
_WARM_UP = 1


def time_collectives(task: dict[str, Any]) -> dict[str, Any]:
    """Time one collective on messages of `bytes`; each worker reports its own times."""
    make = _KINDS[task["collective"]]
    call = make(int(task["bytes"]) // 4)
    return repeat(call, float(task["seconds"]), _FEWEST, _MOST, _WARM_UP).as_json()


def _all_reduce(elements: int) -> Callable[[], object]:
    data = torch.ones(elements)
    return lambda: dist.all_reduce(data)


def _all_gather(elements: int) -> Callable[[], object]:
    """`elements` are those of the gathered whole."""
    workers = dist.get_world_size()
    part = torch.ones(elements // workers)
    return lambda: dist.all_gather_into_tensor(torch.empty(len(part) * workers), part)


def _reduce_scatter(elements: int) -> Callable[[], object]:
    """`elements` are those of the whole that is scattered."""
    workers = dist.get_world_size()
    whole = torch.ones(elements // workers * workers)
    return lambda: dist.reduce_scatter_tensor(torch.empty(len(whole) // workers), whole)


def _send(elements: int) -> Callable[[], object]:
    """There and back between workers 0 and 1: two messages one after the other."""
    data, rank = torch.ones(elements), dist.get_rank()

    def there_and_back() -> None:
        if rank == 0:
            dist.send(data, 1)
            dist.recv(data, 1)
        elif rank == 1:
            dist.recv(data, 0)
            dist.send(data, 0)

    return there_and_back


def _push_pull(elements: int) -> Callable[[], object]:
    """All workers send a message to the server at once and each gets one as large back."""
    data = torch.ones(elements)
    if dist.get_rank() == 0:
        serve_echo()
    dist.barrier()
    return lambda: exchange(data)


_KINDS: dict[str, Callable[[int], Callable[[], object]]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "send": _send,
    "push_pull": _push_pull,
}
