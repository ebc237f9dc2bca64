"""Fully sharded data parallel (`fully_shard`): each block is a unit, gathered when needed and freed again."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from foretrain.measuring.distributed_trials.models import example, loss_of
from foretrain.measuring.distributed_trials.repeating import repeat


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Train one model; every worker tells the time of its steps."""
    made = example(task["model"], int(task["batch"]))
    module, mesh = made.module, init_device_mesh("cpu", (dist.get_world_size(),))
    for block in module:
        fully_shard(block, mesh=mesh)
    fully_shard(module, mesh=mesh)
    optimizer = torch.optim.SGD(module.parameters(), 0.01, 0.9)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss_of(module(made.inputs), made.targets).backward()
        optimizer.step()

    return repeat(step, float(task["seconds"]), int(task["fewest"]), int(task["most"])).as_json()
