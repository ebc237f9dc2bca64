"""What moving tensors within memory takes: the copies that strategies make around their communication."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from foretrain.measuring.distributed_trials.processor_time import settled_seconds


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Processor seconds to copy, to copy into memory asked for anew, and to add, tensors of so many bytes."""
    elements = int(task["bytes"]) // 4
    sources = [torch.ones(elements) for _ in range(3)]
    target = torch.empty(elements)
    kinds: dict[str, Callable[[int], object]] = {
        "copy": lambda turn: target.copy_(sources[turn % 3]),
        "clone": lambda turn: sources[turn % 3].clone(),
        "add": lambda turn: target.add_(sources[turn % 3]),
    }
    return {name: settled_seconds(call, int(task["runs"])) for name, call in kinds.items()}
