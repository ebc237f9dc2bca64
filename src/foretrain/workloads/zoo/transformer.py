"""The original Transformer, for translation. Vaswani et al., arXiv:1706.03762."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretrain.workloads.example import Example
from foretrain.workloads.zoo.attention import Attention
from foretrain.workloads.zoo.blocks import Block, FeedForward
from foretrain.workloads.zoo.catalogue import Sizes
from foretrain.workloads.zoo.tasks import sequence_to_sequence

_LABEL_SMOOTHING = 0.1


class Transformer(nn.Module):
    """Encoder and decoder with the norm after; one embedding serves source, target and output."""

    def __init__(
        self, vocabulary: int, width: int, dropout: float, encoder: list[Block], decoder: list[Block]
    ) -> None:
        super().__init__()
        self.scale = math.sqrt(width)
        self.tokens = nn.Embedding(vocabulary, width)
        self.dropout = nn.Dropout(dropout)
        self.encoder = nn.ModuleList(encoder)
        self.decoder = nn.ModuleList(decoder)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory = self._embed(source)
        for block in self.encoder:
            memory = block(memory)
        x = self._embed(target)
        for block in self.decoder:
            x = block(x, memory=memory)
        return functional.linear(x, self.tokens.weight)

    def _embed(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) * self.scale
        embedded: Tensor = self.dropout(x + sinusoids(ids.size(1), x))
        return embedded


def sinusoids(positions: int, like: Tensor) -> Tensor:
    """sin and cos of position / 10000^(2i / width), side by side, in the type of `like`."""
    width = like.size(-1)
    index = torch.arange(0, width, 2, device=like.device, dtype=torch.float32)
    steps = torch.arange(positions, device=like.device, dtype=torch.float32)
    angles = torch.outer(steps, 10_000.0 ** (-index / width))
    return torch.cat((angles.sin(), angles.cos()), dim=-1).to(like.dtype)


def transformer(
    sizes: Sizes,
    *,
    layers: int,
    width: int,
    heads: int,
    hidden: int,
    vocabulary: int,
    dropout: float,
    attention_dropout: float = 0.1,
) -> Example:
    """An encoder-decoder for translation, trained with label smoothing."""

    def attention(*, causal: bool) -> Attention:
        return Attention(width, heads, kind=sizes.attention, causal=causal, dropout=attention_dropout)

    def block(*, decoder: bool) -> Block:
        return Block(
            attention(causal=decoder),
            FeedForward(width, hidden, "relu"),
            partial(nn.LayerNorm, width),
            cross_attention=attention(causal=False) if decoder else None,
            dropout=dropout,
            norm_first=False,
        )

    encoder = [block(decoder=False) for _ in range(layers)]
    decoder = [block(decoder=True) for _ in range(layers)]
    module = Transformer(vocabulary, width, dropout, encoder, decoder)
    return sequence_to_sequence(module, sizes, vocabulary=vocabulary, label_smoothing=_LABEL_SMOOTHING)
