"""Pipeline parallel training (`torch.distributed.pipelining`, 1F1B): each worker has some of the blocks."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from foretrain.measuring.distributed_trials.models import example, loss_of
from foretrain.measuring.distributed_trials.repeating import repeat


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Train one model; every worker tells the time of its steps."""
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
