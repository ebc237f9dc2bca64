"""Decoder-only transformers with learned positions: GPT-2, GPT-3 and OPT.

Radford et al., "Language Models are Unsupervised Multitask Learners" (2019); Brown et al., arXiv:2005.14165;
Zhang et al., arXiv:2205.01068. GPT-3 alternates dense and locally banded sparse attention; here all is dense.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretrain.workloads.example import Example
from foretrain.workloads.zoo.attention import Attention
from foretrain.workloads.zoo.blocks import Block, FeedForward
from foretrain.workloads.zoo.catalogue import AttentionKind, Sizes
from foretrain.workloads.zoo.tasks import language_modelling


@dataclass(frozen=True, slots=True, kw_only=True)
class GptConfig:
    """The architecture. `hidden` is four times the width unless given.

    An `embedding_width` other than the width adds a projection on either side, as the smallest OPTs have.
    `fused_kernels` are Megatron's: scale in the product, mask in the softmax.
    OPT's table of positions has two rows more than it has positions (`unused_positions`).
    """

    layers: int
    width: int
    heads: int
    vocabulary: int = 50257
    positions: int = 1024
    hidden: int | None = None
    embedding_width: int | None = None
    unused_positions: int = 0
    activation: str = "gelu-composed"
    fused_qkv: bool = True
    dropout: float = 0.1
    attention_dropout: float = 0.1
    embedding_dropout: float = 0.1
    fused_kernels: bool = False


class Gpt(nn.Module):
    """Embeddings, blocks with the norm first, a last norm, and logits by the transposed embedding."""

    def __init__(self, config: GptConfig, attention: AttentionKind) -> None:
        super().__init__()
        embedding_width = config.embedding_width or config.width
        self.offset = config.unused_positions
        self.tokens = nn.Embedding(config.vocabulary, embedding_width)
        self.positions = nn.Embedding(config.positions + config.unused_positions, config.width)
        self.dropout = nn.Dropout(config.embedding_dropout)
        projected = embedding_width != config.width
        self.widen = nn.Linear(embedding_width, config.width, bias=False) if projected else None
        self.narrow = nn.Linear(config.width, embedding_width, bias=False) if projected else None
        self.blocks = nn.ModuleList(_block(config, attention) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)

    def forward(self, ids: Tensor) -> Tensor:
        x: Tensor = self.tokens(ids)
        if self.widen is not None:
            x = self.widen(x)
        positions = torch.arange(self.offset, self.offset + ids.size(1), device=ids.device)
        x = self.dropout(x + self.positions(positions))
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        if self.narrow is not None:
            x = self.narrow(x)
        return functional.linear(x, self.tokens.weight)


def _block(config: GptConfig, attention: AttentionKind) -> Block:
    hidden = config.hidden or 4 * config.width
    return Block(
        Attention(
            config.width,
            config.heads,
            kind=attention,
            causal=True,
            dropout=config.attention_dropout,
            fused=config.fused_qkv,
            fused_kernels=config.fused_kernels,
        ),
        FeedForward(config.width, hidden, config.activation),
        partial(nn.LayerNorm, config.width),
        dropout=config.dropout,
    )


def gpt(sizes: Sizes, **config: object) -> Example:
    """A causal language model; `config` holds the fields of `GptConfig`."""
    settings = GptConfig(**config)  # type: ignore[arg-type]
    module = Gpt(settings, sizes.attention)
    return language_modelling(module, sizes, vocabulary=settings.vocabulary)
