"""Micro-benchmarks of the network between the workers: what each collective takes by size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from foretrain.measuring.distributed_trials.parameter_server import exchange, serve_echo
from foretrain.measuring.distributed_trials.repeating import repeat

_FEWEST, _MOST = 3, 40
_WARM_UP = 1


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Time one collective on messages of so many bytes; each worker tells its own times."""
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
