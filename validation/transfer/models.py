"""Single blocks of language models, as `models.py:opt_350m_block`: hidden states in, hidden states out.

Megatron-DeepSpeed's blocks: norm, attention step by step (scores, scaling, mask, softmax, product), norm,
hidden layer. The gradient also goes to the input, as it does in a block that is not the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

Built = tuple[nn.Module, tuple[Tensor], Callable[[Tensor], Tensor]]


class Block(nn.Module):
    """A block with `kv_heads` key and value heads; gated with RMS norms like Llama's, or GELU like GPT's."""

    def __init__(self, width: int, heads: int, kv_heads: int, hidden: int, is_gated: bool) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        norm = nn.RMSNorm if is_gated else nn.LayerNorm
        self.norm_1, self.norm_2 = norm(width), norm(width)
        self.qkv = nn.Linear(width, (heads + 2 * kv_heads) * self.size, bias=not is_gated)
        self.out = nn.Linear(width, width, bias=not is_gated)
        self.up = nn.Linear(width, hidden, bias=not is_gated)
        self.gate = nn.Linear(width, hidden, bias=False) if is_gated else None
        self.down = nn.Linear(hidden, width, bias=not is_gated)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.out(self._attend(self.norm_1(x)))
        y = self.norm_2(x)
        raised = self.up(y)
        hidden = functional.gelu(raised) if self.gate is None else functional.silu(self.gate(y)) * raised
        result: Tensor = x + self.down(hidden)
        return result

    def _attend(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        sizes = [self.heads * self.size, self.kv_heads * self.size, self.kv_heads * self.size]
        q, k, v = (
            part.view(batch, tokens, -1, self.size).transpose(1, 2)
            for part in self.qkv(x).split(sizes, dim=-1)
        )
        if self.kv_heads < self.heads:
            k, v = (part.repeat_interleave(self.heads // self.kv_heads, dim=1) for part in (k, v))
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.size)
        hides_later = torch.ones(tokens, tokens, dtype=torch.bool, device=x.device).triu(1)
        weights = functional.softmax(scores.masked_fill(hides_later, -1e4), dim=-1)
        result: Tensor = (weights @ v).transpose(1, 2).reshape(batch, tokens, width)
        return result


class _InputWithGradient(nn.Module):
    """The block behind a parameter that is added to its input, so that the input's gradient is computed."""

    def __init__(self, block: nn.Module, width: int) -> None:
        super().__init__()
        self.block, self.bias = block, nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.block(x + self.bias)
        return result


def _block(
    width: int, heads: int, kv_heads: int, hidden: int, is_gated: bool = False
) -> Callable[[int, int], Built]:
    def build(batch: int = 1, seq_len: int = 2048) -> Built:
        module = _InputWithGradient(Block(width, heads, kv_heads, hidden, is_gated), width)
        return module, (torch.zeros(batch, seq_len, width),), torch.mean

    return build


opt_350m_block, opt_30b_block = _block(1024, 16, 16, 4096), _block(7168, 56, 56, 28_672)
gpt_neo_block = _block(2560, 20, 20, 10_240)
llama3_8b_block = _block(4096, 32, 8, 14_336, is_gated=True)
