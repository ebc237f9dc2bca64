"""Trials of our own experiments with CPU workers: what a worker of a crew is asked to do.

Training one of the `chain_models`, with times of its steps: `train_alone` (seconds of the parts of a step
without any communication), `train_ddp` (buckets of gradients are averaged in the backward pass), `train_fsdp`
(each block is a unit, gathered when needed and freed again), `train_pipeline` (1F1B, each worker has some of
the blocks) and `train_with_server` (synchronous parameter server).

Micro-benchmarks: `time_copies`, what strategies copy in memory around their communication, in processor time,
which other processes on the machine do not lengthen; and `time_collectives`, by size of the message.

A crew is handed one by its place: `crew.do(TRIALS["ddp"], model="mlp", ...)`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import rpc

from experiments.chain_models import Example, example, loss_of
from foretrain.measuring.distributed_trials import training
from foretrain.measuring.distributed_trials.training import SERVER, Step, Trainable, agreed_count

WARM_UP = 3
"""Steps before times count: buckets are final after the first, memory after a few."""
_BENCHMARK_WARM_UP = 2
_COLLECTIVE_WARM_UP = 1
_FEWEST, _MOST = 3, 40
"""How often a collective is timed."""


@dataclass(frozen=True)
class Repeated:
    """What one run takes: seconds on the wall (median, lower quartile), processor seconds of this process."""

    seconds: float
    quartile_seconds: float
    processor_seconds: float
    runs: int

    def as_json(self) -> dict[str, float]:
        """As a message."""
        return asdict(self)


def repeat(
    run: Callable[[], object], seconds: float, fewest: int, most: int, warm_up: int = WARM_UP
) -> Repeated:
    """Run it for about `seconds` after a warm-up; the first worker decides how often for all."""
    warm = [_taken(run) for _ in range(warm_up)]
    count = agreed_count(int(min(max(seconds / max(warm[-1], 1e-6), fewest), most)))
    used = time.process_time()
    times = [_taken(run) for _ in range(count)]
    used = (time.process_time() - used) / count
    quartile = statistics.quantiles(times, n=4)[0] if count > 1 else times[0]
    return Repeated(statistics.median(times), quartile, used, count)


def _taken(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def train_alone(task: dict[str, Any]) -> dict[str, Any]:
    """Train one model alone, block by block; reports processor seconds of every block's passes."""
    made = example(task["model"], int(task["batch"]))
    optimizer = torch.optim.SGD(made.module.parameters(), 0.01, 0.9)
    deadline = 0.0
    rounds: list[list[float]] = []
    while len(rounds) < WARM_UP + int(task["fewest"]) or time.perf_counter() < deadline:
        if len(rounds) == WARM_UP:
            deadline = time.perf_counter() + float(task["seconds"])
        rounds.append(_step(made, optimizer))
    middle = [statistics.median(column) for column in zip(*rounds[WARM_UP:], strict=True)]
    blocks = len(made.blocks)
    return {
        "forward_seconds": middle[:blocks],
        "backward_seconds": middle[blocks : 2 * blocks][::-1],
        "optimizer_seconds": middle[2 * blocks],
        "step_seconds": middle[2 * blocks + 1],
        "parameter_bytes": [
            [4 * parameter.numel() for parameter in block.parameters()] for block in made.blocks
        ],
        "boundary_bytes": _boundaries(made),
    }


def _step(made: Example, optimizer: torch.optim.Optimizer) -> list[float]:
    """Processor seconds of the forward passes, the backward passes (last first), the update, and all."""
    marks = [time.process_time()]
    optimizer.zero_grad(set_to_none=True)
    hidden, edges = made.inputs, []
    for index, block in enumerate(made.blocks):
        start = hidden.detach().requires_grad_(hidden.is_floating_point() and index > 0)
        hidden = block(start)
        if index + 1 == len(made.blocks):
            hidden = loss_of(hidden, made.targets)
        edges.append((start, hidden))
        marks.append(time.process_time())
    slope: Tensor | None = None
    for start, end in reversed(edges):
        end.backward(slope)
        slope = start.grad
        marks.append(time.process_time())
    optimizer.step()
    marks.append(time.process_time())
    taken = [after - before for before, after in pairwise(marks)]
    return [*taken, marks[-1] - marks[0]]


def _boundaries(made: Example) -> list[int]:
    """Bytes between each block and the next."""
    hidden, sizes = made.inputs, []
    with torch.no_grad():
        for block in made.blocks[:-1]:
            hidden = block(hidden)
            sizes.append(hidden.numel() * hidden.element_size())
    return sizes


def train_ddp(task: dict[str, Any]) -> dict[str, Any]:
    """Train one model under DistributedDataParallel; every worker reports the time of its steps."""
    return _times(training.ddp_step(_trainable(task)), task)


def train_fsdp(task: dict[str, Any]) -> dict[str, Any]:
    """Train one model under `fully_shard`; every worker reports the time of its steps."""
    return _times(training.fsdp_step(_trainable(task)), task)


def train_with_server(task: dict[str, Any]) -> dict[str, Any]:
    """Train one model with a synchronous server; every worker reports the time of its steps."""
    times = _times(training.server_step(_trainable(task), wait_for_all=True), task)
    dist.barrier()
    return times


def _trainable(task: dict[str, Any]) -> Trainable:
    made = example(task["model"], int(task["batch"]))
    return Trainable(made.module, made.blocks, lambda module: loss_of(module(made.inputs), made.targets))


def _times(step: Step, task: dict[str, Any]) -> dict[str, Any]:
    return repeat(step, float(task["seconds"]), int(task["fewest"]), int(task["most"])).as_json()


def train_pipeline(task: dict[str, Any]) -> dict[str, Any]:
    """Train one model; every worker reports the time of its steps."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    made = example(task["model"], int(task["batch"]))
    rank, stages = dist.get_rank(), dist.get_world_size()
    own = nn.Sequential(*stage_blocks(made.blocks, stages)[rank])
    stage = PipelineStage(own, rank, stages, torch.device("cpu"))
    schedule = Schedule1F1B(stage, int(task["micro_batches"]), loss_fn=loss_of)
    optimizer = torch.optim.SGD(own.parameters(), 0.01, 0.9)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        if rank == 0:
            schedule.step(made.inputs)
        elif rank == stages - 1:
            schedule.step(target=made.targets)
        else:
            schedule.step()
        optimizer.step()

    return _times(step, task)


def stage_blocks(blocks: tuple[nn.Module, ...], stages: int) -> list[tuple[nn.Module, ...]]:
    """Blocks in a row, equally many for each stage."""
    each = len(blocks) // stages
    return [blocks[stage * each : (stage + 1) * each] for stage in range(stages)]


def warm_seconds(call: Callable[[int], object], runs: int) -> float:
    """The median over `runs` after a warm-up; `call` gets the number of the run."""
    taken = []
    for turn in range(_BENCHMARK_WARM_UP + runs):
        start = time.process_time()
        call(turn)
        taken.append(time.process_time() - start)
    return statistics.median(taken[_BENCHMARK_WARM_UP:])


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


def time_collectives(task: dict[str, Any]) -> dict[str, Any]:
    """Time one collective on messages of `bytes`; each worker reports its own times."""
    make = _KINDS[task["collective"]]
    call = make(int(task["bytes"]) // 4)
    return repeat(call, float(task["seconds"]), _FEWEST, _MOST, _COLLECTIVE_WARM_UP).as_json()


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
    if dist.get_rank() == 0:  # a server that holds no parameters answers with what was pushed
        rpc.rpc_sync(SERVER, training.hold, args=(dist.get_world_size(), []))
    dist.barrier()
    return lambda: rpc.rpc_sync(SERVER, training.push, args=([data],))[0]


_KINDS: dict[str, Callable[[int], Callable[[], object]]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "send": _send,
    "push_pull": _push_pull,
}


TRIALS = {
    name: f"{__name__}:{trial.__name__}"
    for name, trial in {
        "solo": train_alone,
        "ddp": train_ddp,
        "fsdp": train_fsdp,
        "pipeline": train_pipeline,
        "parameter_server": train_with_server,
        "copies": time_copies,
        "collectives": time_collectives,
    }.items()
}
"""Where a worker finds each trial."""
