"""How many samples and tokens example inputs hold, and the same inputs for another batch."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from foretrain.errors import InvalidRequest


def batch_of(inputs: tuple[Any, ...], name: str) -> int:
    """The first dimension of the first tensor."""
    for leaf in tree_leaves(inputs):
        if isinstance(leaf, torch.Tensor) and leaf.dim():
            return leaf.shape[0]
    raise InvalidRequest(f"{name} has no input tensor with a batch dimension")


def resized(inputs: tuple[Any, ...], old: int, new: int) -> tuple[Any, ...]:
    """The inputs with `new` samples where they had `old` along their first dimension."""

    def other(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dim() and value.shape[0] == old:
            return value.new_empty((new, *value.shape[1:]), device="meta")
        return value

    changed: tuple[Any, ...] = tree_map(other, inputs)
    return changed


def tokens_of(inputs: tuple[Any, ...]) -> int:
    """How many token ids the inputs hold: the elements of the first integer matrix, 0 if there is none."""
    for leaf in tree_leaves(inputs):
        if isinstance(leaf, torch.Tensor) and leaf.dim() == 2 and leaf.dtype in (torch.int64, torch.int32):
            return leaf.numel()
    return 0
