"""MPT as llm-foundry trained it in its benchmark: learned positions, tied embedding, fused cross-entropy.

`ComposerMPTCausalLM` uses flash-attn's `CrossEntropyLoss` by default: one kernel reads the half-precision
logits, and the backward pass writes their gradient over them, so that no FP32 logits exist. A trace computes
no values, so the loss here stands for that kernel by operators of the same traffic and lifetimes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

VOCABULARY = 50_368
Built = tuple[nn.Module, tuple[Tensor], Callable[[Tensor], Tensor]]


class Attention(nn.Module):
    """Queries, keys and values in one matrix, flash attention, output matrix."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.Wqkv = nn.Linear(width, 3 * width)
        self.out_proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        shape = (batch, tokens, self.heads, width // self.heads)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.Wqkv(x).chunk(3, dim=-1))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        result: Tensor = self.out_proj(attended.transpose(1, 2).reshape(batch, tokens, width))
        return result


class Block(nn.Module):
    """Attention and a hidden layer of four times the width, each after a norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.up_proj, self.down_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm_1(x))
        result: Tensor = x + self.down_proj(functional.gelu(self.up_proj(self.norm_2(x))))
        return result


class Mpt(nn.Module):
    """Tokens to logits."""

    def __init__(self, width: int, layers: int, heads: int, positions: int) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, width), nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm_f = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return functional.linear(self.norm_f(x), self.wte.weight)


class _FusedCrossEntropy(torch.autograd.Function):
    """Reads the logits once; in the backward pass reads them again and writes the gradient over them."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        ctx.save_for_backward(logits)
        return logits.amax(dim=-1).float().mean()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (logits,) = ctx.saved_tensors
        overwritten: Tensor = logits.mul_(grads[0].to(logits.dtype))
        return overwritten


def _loss(logits: Tensor) -> Tensor:
    loss: Tensor = _FusedCrossEntropy.apply(logits.view(-1, VOCABULARY))  # type: ignore[no-untyped-call]
    return loss


def _sized(width: int, layers: int, heads: int) -> Callable[[int, int], Built]:
    def build(batch: int = 1, seq_len: int = 2048) -> Built:
        tokens = torch.zeros((batch, seq_len), dtype=torch.long)
        return Mpt(width, layers, heads, seq_len), (tokens,), _loss

    return build


mpt_125m, mpt_350m = _sized(768, 12, 12), _sized(1024, 24, 16)
mpt_760m, mpt_1b = _sized(1536, 24, 12), _sized(2048, 24, 16)
mpt_3b, mpt_7b = _sized(2560, 32, 20), _sized(4096, 32, 32)
mpt_13b, mpt_30b, mpt_70b = _sized(5120, 40, 40), _sized(7168, 48, 56), _sized(8192, 80, 64)
