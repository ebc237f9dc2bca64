"""One step of training, ready to run: a module, its inputs and the loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Loss = Callable[[Any], torch.Tensor]
"""From what the module returned to the scalar that is differentiated; it closes over the targets."""


@dataclass(frozen=True, eq=False)
class Example:
    """What one device holds in one training step.

    `module` is in training mode and takes `inputs` by position. `loss` is None where the module itself
    returns the scalar loss. `samples` and `tokens` are how many one step holds; for a model that reads one
    sequence and writes another, the tokens of both count, and `tokens` is 0 where the inputs are not tokens.
    `notes` say what was assumed, for the answer.

    Where there are `optimizers`, calling the module runs the whole step: all its forward and backward passes,
    and the updates of these optimizers.
    """

    module: torch.nn.Module
    inputs: tuple[Any, ...]
    loss: Loss | None
    samples: int
    tokens: int = 0
    notes: tuple[str, ...] = ()
    optimizers: tuple[torch.optim.Optimizer, ...] = ()

    def forward(self) -> torch.Tensor:
        """The scalar loss of the step; `.backward()` on it completes forward and backward."""
        output = self.module(*self.inputs)
        loss: torch.Tensor = output if self.loss is None else self.loss(output)
        return loss
