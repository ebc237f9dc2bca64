"""DistributedDataParallel: each worker has the whole model; buckets of gradients are averaged in backward."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from foretrain.measuring.distributed_trials.models import example, loss_of
from foretrain.measuring.distributed_trials.repeating import repeat


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Train one model; every worker tells the time of its steps."""
    made = example(task["model"], int(task["batch"]))
    module = DistributedDataParallel(made.module)
    optimizer = torch.optim.SGD(module.parameters(), 0.01, 0.9)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss_of(module(made.inputs), made.targets).backward()
        optimizer.step()

    return repeat(step, float(task["seconds"]), int(task["fewest"]), int(task["most"])).as_json()
