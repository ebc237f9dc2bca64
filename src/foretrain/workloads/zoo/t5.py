"""T5: an encoder-decoder with relative position biases. Raffel et al., arXiv:1910.10683.

RMS norm first, no linear biases, scores not scaled. The position bias is learned once per stack and shared by
its layers; cross-attention has none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretrain.workloads.example import Example
from foretrain.workloads.zoo.attention import Attention, causal_bias
from foretrain.workloads.zoo.blocks import Block, FeedForward
from foretrain.workloads.zoo.catalogue import AttentionKind, Sizes
from foretrain.workloads.zoo.tasks import sequence_to_sequence

_EPS = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class T5Config:
    """The architecture; `head_width` times `heads` need not be the width."""

    layers: int
    width: int
    hidden: int
    heads: int
    head_width: int = 64
    vocabulary: int = 32128
    buckets: int = 32
    furthest: int = 128
    dropout: float = 0.1

    def feed_forward(self) -> nn.Module:
        """The dense feed-forward network of one layer."""
        return FeedForward(self.width, self.hidden, "relu", dropout=self.dropout, linear_bias=False)


FeedForwardOf = Callable[[int], nn.Module]
"""The feed-forward network of the layer with that index; a mixture of experts differs by layer."""


class RelativeBias(nn.Module):
    """A learned bias per head and bucket of distances: near ones apart, far ones by their logarithm."""

    def __init__(self, config: T5Config, *, causal: bool) -> None:
        super().__init__()
        self.buckets, self.furthest, self.causal = config.buckets, config.furthest, causal
        self.bias = nn.Embedding(config.buckets, config.heads)

    def forward(self, length: int, device: torch.device) -> Tensor:
        """The bias of each pair of positions, (1, heads, length, length), the causal mask included."""
        position = torch.arange(length, device=device)
        buckets = self._bucket(position[None, :] - position[:, None])
        bias: Tensor = self.bias(buckets).permute(2, 0, 1).unsqueeze(0)
        return bias + causal_bias(bias) if self.causal else bias

    def _bucket(self, distance: Tensor) -> Tensor:
        if self.causal:
            buckets, first = self.buckets, torch.zeros_like(distance)
            distance = (-distance).clamp(min=0)
        else:
            buckets = self.buckets // 2
            first = (distance > 0).long() * buckets
            distance = distance.abs()
        exact = buckets // 2
        growth = (distance.clamp(min=1) / exact).log() / math.log(self.furthest / exact)
        far = (exact + growth * (buckets - exact)).long().clamp(max=buckets - 1)
        return first + torch.where(distance < exact, distance, far)


class Stack(nn.Module):
    """The encoder, or the decoder that also reads a memory."""

    def __init__(
        self, config: T5Config, attention: AttentionKind, feed_forward: FeedForwardOf, *, decoder: bool
    ) -> None:
        super().__init__()
        make = partial(
            Attention,
            config.width,
            config.heads,
            kind=attention,
            dropout=config.dropout,
            head_width=config.head_width,
            linear_bias=False,
            scale=1.0,
        )
        norm = partial(nn.RMSNorm, config.width, eps=_EPS)
        self.relative = RelativeBias(config, causal=decoder)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(
            Block(
                make(),
                feed_forward(layer),
                norm,
                cross_attention=make() if decoder else None,
                dropout=config.dropout,
            )
            for layer in range(config.layers)
        )
        self.norm = norm()

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        bias = self.relative(x.size(1), x.device)
        x = self.dropout(x)
        for block in self.blocks:
            x = block(x, memory=memory, bias=bias)
        output: Tensor = self.dropout(self.norm(x))
        return output


class T5(nn.Module):
    """Encoder and decoder stacks; one embedding serves source, target and, scaled, the output."""

    def __init__(self, config: T5Config, attention: AttentionKind, feed_forward: FeedForwardOf) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.encoder = Stack(config, attention, feed_forward, decoder=False)
        self.decoder = Stack(config, attention, feed_forward, decoder=True)
        self.output_scale = config.width**-0.5

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory = self.encoder(self.tokens(source))
        x = self.decoder(self.tokens(target), memory)
        return functional.linear(x * self.output_scale, self.tokens.weight)


def t5(sizes: Sizes, **config: object) -> Example:
    """A text-to-text model; `config` holds the fields of `T5Config`."""
    settings = T5Config(**config)  # type: ignore[arg-type]
    module = T5(settings, sizes.attention, lambda _: settings.feed_forward())
    return sequence_to_sequence(module, sizes, vocabulary=settings.vocabulary)
