"""Optimizers whose state is kept in eight bits, as bitsandbytes runs them: one kernel updates one tensor.

Each block of state has a scale in FP32; small tensors keep FP32 state.
Dettmers et al. 2022, arXiv:2110.02861.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from foretrain.workloads.options import QUANTISED_BLOCK, QUANTISED_FROM

_library = torch.library.Library("foretrain", "FRAGMENT")
_library.define("update_8bit(Tensor(a!) weights, Tensor gradient, Tensor(b!)[] state) -> ()")


def _update(weights: Tensor, gradient: Tensor, state: list[Tensor]) -> None:
    """Nothing to compute: a trace has no values."""
    assert weights.shape == gradient.shape
    assert state


_library.impl("update_8bit", _update, "CompositeExplicitAutograd")


class EightBitOptimizer(torch.optim.Optimizer):
    """Keeps `moments` moments of every weight: two for AdamW, one for Lion."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter], moments: int) -> None:
        super().__init__(parameters, {})
        self._moments = moments

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient, one after another."""
        del closure
        for each in self.param_groups[0]["params"]:
            if each.grad is None:
                continue
            if not self.state[each]:
                self.state[each] = self._new_state(each)
            torch.ops.foretrain.update_8bit(each.detach(), each.grad, list(self.state[each].values()))

    def _new_state(self, parameter: Tensor) -> dict[str, Tensor]:
        if parameter.numel() < QUANTISED_FROM:
            full = torch.zeros_like(parameter, dtype=torch.float32)
            return {f"moment_{number}": torch.zeros_like(full) for number in range(self._moments)}
        blocks = math.ceil(parameter.numel() / QUANTISED_BLOCK)
        state: dict[str, Tensor] = {}
        for number in range(self._moments):
            state[f"moment_{number}"] = torch.zeros_like(parameter, dtype=torch.uint8)
            state[f"scale_{number}"] = torch.zeros(blocks, device=parameter.device)
        return state
