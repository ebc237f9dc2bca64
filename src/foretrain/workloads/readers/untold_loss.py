"""The loss of a model whose file says nothing of one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from foretrain.errors import InvalidRequest
from foretrain.workloads.tracing.nested import tensors_in


def untold_loss(output: Any) -> Tensor:
    """Cross-entropy if the first floating-point output is a matrix of logits, else the mean of it."""
    first = next((value for value in tensors_in(output) if value.is_floating_point()), None)
    if first is None:
        raise InvalidRequest("no output of the model is of floating-point type, so nothing can be trained")
    if first.dim() != 2 or first.shape[1] < 2:
        return first.mean()
    targets = torch.zeros(first.shape[0], dtype=torch.int64, device=first.device)
    return functional.cross_entropy(first, targets)
