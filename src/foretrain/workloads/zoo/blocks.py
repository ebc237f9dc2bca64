"""What transformer layers are made of: feed-forward networks, residual sublayers, the block itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from foretrain.workloads.zoo.attention import Rotary


class ComposedGelu(nn.Module):
    """GELU by its tanh approximation, op by op, as the original GPT-2 and its common ports compute it.

    0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))). Hendrycks and Gimpel, arXiv:1606.08415.
    """

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "gelu-tanh": lambda: nn.GELU(approximate="tanh"),
    "gelu-composed": ComposedGelu,
}


class FeedForward(nn.Module):
    """down(dropout(activation(up(x))))."""

    def __init__(
        self, width: int, hidden: int, activation: str, *, dropout: float = 0.0, linear_bias: bool = True
    ) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden, bias=linear_bias)
        self.activation = ACTIVATIONS[activation]()
        self.dropout = nn.Dropout(dropout)
        self.down = nn.Linear(hidden, width, bias=linear_bias)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.down(self.dropout(self.activation(self.up(x))))
        return output


class SwiGLU(nn.Module):
    """down(silu(gate(x)) · up(x)), without biases. Shazeer, arXiv:2002.05202.

    `merged` makes gate and up by one product.
    """

    def __init__(self, width: int, hidden: int, merged: bool = False) -> None:
        super().__init__()
        self.merged = merged
        if merged:
            self.gate_up = nn.Linear(width, 2 * hidden, bias=False)
        else:
            self.gate = nn.Linear(width, hidden, bias=False)
            self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        self.silu = nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1) if self.merged else (self.gate(x), self.up(x))
        output: Tensor = self.down(self.silu(gate) * up)
        return output


class Residual(nn.Module):
    """x + dropout(inner(norm(x))) with the norm first, norm(x + dropout(inner(x))) with the norm after."""

    def __init__(self, inner: nn.Module, norm: nn.Module, dropout: float, *, norm_first: bool) -> None:
        super().__init__()
        self.inner, self.norm = inner, norm
        self.dropout = nn.Dropout(dropout)
        self.norm_first = norm_first

    def forward(self, x: Tensor, **given: Any) -> Tensor:
        if self.norm_first:
            output: Tensor = x + self.dropout(self.inner(self.norm(x), **given))
        else:
            output = self.norm(x + self.dropout(self.inner(x, **given)))
        return output


class Block(nn.Module):
    """Self-attention, cross-attention in a decoder that has a memory to read, and a feed-forward network."""

    def __init__(
        self,
        attention: nn.Module,
        feed_forward: nn.Module,
        norm: Callable[[], nn.Module],
        *,
        cross_attention: nn.Module | None = None,
        dropout: float = 0.0,
        norm_first: bool = True,
    ) -> None:
        super().__init__()

        def residual(inner: nn.Module) -> Residual:
            return Residual(inner, norm(), dropout, norm_first=norm_first)

        self.attention = residual(attention)
        self.cross_attention = residual(cross_attention) if cross_attention else None
        self.feed_forward = residual(feed_forward)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        bias: Tensor | None = None,
        rotary: Rotary | None = None,
    ) -> Tensor:
        x = self.attention(x, bias=bias, rotary=rotary)
        if self.cross_attention is not None:
            x = self.cross_attention(x, memory=memory)
        output: Tensor = self.feed_forward(x)
        return output
