"""Shapes of the CTC loss on the meta device, where torch has none for its backward pass."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

_BACKWARD = "aten::_ctc_loss_backward"


@cache
def ensure_ctc_shapes() -> None:
    """Teach torch the shape of the CTC loss's gradient, once per process, unless it knows it already."""
    if torch._C._dispatch_has_kernel_for_dispatch_key(_BACKWARD, "Meta"):
        return
    torch.library.impl(_BACKWARD, "Meta")(_gradient_shape)


def _gradient_shape(_: Tensor, log_probabilities: Tensor, *__: object, **___: object) -> Tensor:
    return torch.empty_like(log_probabilities)
