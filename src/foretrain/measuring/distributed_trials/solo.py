"""One worker for itself: what the parts of a step take without any communication."""

from __future__ import annotations

import statistics
import time
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from foretrain.measuring.distributed_trials.models import Example, example, loss_of
from foretrain.measuring.distributed_trials.repeating import WARM_UP


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Train one model alone, block by block; tells processor seconds of every block's passes."""
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
    hidden, found = made.inputs, []
    with torch.no_grad():
        for block in made.blocks[:-1]:
            hidden = block(hidden)
            found.append(hidden.numel() * hidden.element_size())
    return found
