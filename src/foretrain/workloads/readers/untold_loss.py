"""The loss of a model whose file says nothing of one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from foretrain.errors import InvalidRequest


def untold_loss(output: Any) -> Tensor:
    """Cross-entropy if the first floating-point output is a matrix of logits, else the mean of it."""
    first = next((value for value in _tensors(output) if value.is_floating_point()), None)
    if first is None:
        raise InvalidRequest("no output of the model is of floating-point type, so nothing can be trained")
    if first.dim() != 2 or first.shape[1] < 2:
        return first.mean()
    targets = torch.zeros(first.shape[0], dtype=torch.int64, device=first.device)
    return functional.cross_entropy(first, targets)


def _tensors(output: Any) -> Iterator[Tensor]:
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, dict):
        yield from _tensors(tuple(output.values()))
    elif isinstance(output, list | tuple):
        for item in output:
            yield from _tensors(item)
