"""Single blocks of language models, as `models.py:opt_350m_block`: hidden states in, hidden states out.

Blocks as Sailor's Megatron-DeepSpeed runs them in FP32 (eth-easl/sailor, third_party/Megatron-DeepSpeed,
megatron/model/gpt_neo_model.py and llama_model.py): the scale is part of the product of queries and keys,
scores are masked in place (on a view: the backward pass copies their gradient again and again), softmax and
product follow, all without dropout. Llama has as many key and value heads as heads, norms and rotations
operator by operator, and SiLU of the product of gate and up. The gradient also goes to the input, as it does
in a block that is not the first.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

Built = tuple[nn.Module, tuple[Tensor], Callable[[Tensor], Tensor]]


class RootMeanSquare(nn.Module):
    """A norm of Llama in six operators."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
        return result


class Block(nn.Module):
    """A block on (tokens, samples, width); gated with rotations like Llama's, or GELU like GPT's."""

    hides_later: Tensor
    angle: Tensor

    def __init__(self, width: int, heads: int, hidden: int, tokens: int, is_gated: bool) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        norm = RootMeanSquare if is_gated else nn.LayerNorm
        self.norm_1, self.norm_2 = norm(width), norm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up = nn.Linear(width, hidden)
        self.gate = nn.Linear(width, hidden) if is_gated else None
        self.down = nn.Linear(hidden, width)
        self.register_buffer("hides_later", torch.ones(tokens, tokens, dtype=torch.bool).triu(1))
        self.register_buffer("angle", torch.zeros(tokens, 1, 1, self.size))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.out(self._attend(self.norm_1(x)))
        y = self.norm_2(x)
        raised = self.up(y)
        hidden = functional.gelu(raised) if self.gate is None else functional.silu(self.gate(y) * raised)
        result: Tensor = x + self.down(hidden)
        return result

    def _attend(self, x: Tensor) -> Tensor:
        tokens, batch, width = x.shape
        q, k, v = self.qkv(x).view(tokens, batch, self.heads, 3 * self.size).split(self.size, dim=-1)
        if self.gate is not None:
            q, k = (part * self.angle + _rotated_half(part) * self.angle for part in (q, k))
        q, k, v = (part.reshape(tokens, batch * self.heads, self.size).transpose(0, 1) for part in (q, k, v))
        scores = torch.bmm(q, k.transpose(1, 2))  # as baddbmm without its first operand, scaled by alpha
        weights = scores.view(batch, self.heads, tokens, tokens).masked_fill_(self.hides_later, -1e4)
        weights = functional.softmax(weights, dim=-1).view(batch * self.heads, tokens, tokens)
        result: Tensor = (weights @ v).transpose(0, 1).reshape(tokens, batch, width)
        return result


def _rotated_half(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


class _InputWithGradient(nn.Module):
    """The block behind a parameter that is added to its input, so that the input's gradient is computed."""

    def __init__(self, block: nn.Module, width: int) -> None:
        super().__init__()
        self.block, self.bias = block, nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.block(x + self.bias)
        return result


def _block(width: int, heads: int, hidden: int, is_gated: bool = False) -> Callable[[int, int], Built]:
    def build(batch: int = 1, seq_len: int = 2048) -> Built:
        module = _InputWithGradient(Block(width, heads, hidden, seq_len, is_gated), width)
        return module, (torch.zeros(seq_len, batch, width),), torch.mean

    return build


opt_350m_block, opt_30b_block = _block(1024, 16, 4096), _block(7168, 56, 28_672)
gpt_neo_block = _block(2560, 20, 10_240)
llama3_8b_block = _block(4096, 32, 14_336, is_gated=True)
