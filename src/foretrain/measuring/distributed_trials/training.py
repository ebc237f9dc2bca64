"""Training trials: one worker alone, DistributedDataParallel, fully sharded, and pipeline parallel.

Alone: seconds of the parts of a step without any communication. DDP: each worker has the whole model, and
buckets of gradients are averaged in the backward pass. Fully sharded (`fully_shard`): each block is a unit,
gathered when needed and freed again. Pipeline (`torch.distributed.pipelining`, 1F1B): each worker has some of
the blocks. `train` runs a step of any of these but the pipeline, or with a parameter server, for a model of
the zoo, and reports every step.
"""

from __future__ import annotations

import ctypes
import gc
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from foretrain.measuring.distributed_trials.models import (
    WARM_UP,
    Example,
    Trainable,
    example,
    loss_of,
    record,
    repeat,
    trainable,
)
from foretrain.measuring.distributed_trials.parameter_server import Step, server_step, small_steps


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


def train(task: dict[str, Any]) -> dict[str, Any]:
    """Train one model with a strategy of `STEPS`; every worker reports when each of its steps ran."""
    gc.collect()
    _give_back_memory()
    steps, seconds = task.get("steps"), float(task.get("seconds") or 0.0)
    recorded = record(STEPS[task["strategy"]](task), None if steps is None else int(steps), seconds)
    dist.barrier()
    return recorded.as_json()


def _give_back_memory() -> None:
    """Return freed memory to the system, so that a trial's memory does not show an earlier, larger one."""
    with suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)


def train_ddp(task: dict[str, Any]) -> dict[str, Any]:
    """Train one model; every worker reports the time of its steps."""
    return _repeated(ddp_step(task), task)


def train_fsdp(task: dict[str, Any]) -> dict[str, Any]:
    """Train one model; every worker reports the time of its steps."""
    return _repeated(fsdp_step(task), task)


def _repeated(step: Step, task: dict[str, Any]) -> dict[str, Any]:
    return repeat(step, float(task["seconds"]), int(task["fewest"]), int(task["most"])).as_json()


def single_step(task: dict[str, Any]) -> Step:
    """A step of one worker without any exchange."""
    made = trainable(task)
    return _local_step(made, made.module, _optimizer(task, made.module))


def ddp_step(task: dict[str, Any]) -> Step:
    """A step under DistributedDataParallel."""
    made = trainable(task)
    module = DistributedDataParallel(made.module)
    return _local_step(made, module, _optimizer(task, module))


def fsdp_step(task: dict[str, Any]) -> Step:
    """A step under `fully_shard`, each block a unit."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard  # two seconds to import

    made = trainable(task)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in made.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(made.module, mesh=mesh)
    return _local_step(made, made.module, _optimizer(task, made.module))


def dp_step(task: dict[str, Any]) -> Step:
    """A step with the exchanges of DataParallel: the first worker sends parameters and sums gradients."""
    made = trainable(task)
    parameters = list(made.module.parameters())
    optimizer = _optimizer(task, made.module)

    def step() -> None:
        for parameter in parameters:
            dist.broadcast(parameter.data, 0)
        optimizer.zero_grad(set_to_none=True)
        made.loss(made.module).backward()
        for parameter in parameters:
            if parameter.grad is not None:
                dist.reduce(parameter.grad, 0)
        if dist.get_rank() == 0:
            optimizer.step()

    return step


def _local_step(made: Trainable, module: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        made.loss(module).backward()
        optimizer.step()

    return step


def _optimizer(task: dict[str, Any], module: nn.Module) -> torch.optim.Optimizer:
    """The optimizer of a task by its name, else SGD with momentum."""
    if "optimizer" not in task:
        return torch.optim.SGD(module.parameters(), 0.01, 0.9)
    return small_steps(task["optimizer"], module.parameters())


STEPS: dict[str, Callable[[dict[str, Any]], Step]] = {
    "single": single_step,
    "ddp": ddp_step,
    "dp": dp_step,
    "fsdp": fsdp_step,
    "ps-sync": lambda task: server_step(task, wait_for_all=True),
    "ps-async": lambda task: server_step(task, wait_for_all=False),
}
"""What makes a step, by strategy; `single` is one worker alone."""


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

    return repeat(step, float(task["seconds"]), int(task["fewest"]), int(task["most"])).as_json()


def stage_blocks(blocks: tuple[nn.Module, ...], stages: int) -> list[tuple[nn.Module, ...]]:
    """Blocks in a row, equally many for each stage."""
    each = len(blocks) // stages
    return [blocks[stage * each : (stage + 1) * each] for stage in range(stages)]
