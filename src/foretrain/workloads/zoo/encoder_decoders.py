"""Encoders with decoders: NMT, the original transformer, T5 and Switch.

LSTM translation with Luong attention. Luong et al., arXiv:1508.04025; sizes of OpenNMT-tf's NMT models.

The decoder's attention is computed for all steps after its LSTM, not fed back into the next step, so both
LSTMs run as one fused call each.

The original Transformer, for translation. Vaswani et al., arXiv:1706.03762.

T5: an encoder-decoder with relative position biases. Raffel et al., arXiv:1910.10683.

RMS norm first, no linear biases, scores not scaled. The position bias is learned once per stack and shared by
its layers; cross-attention has none.

Switch Transformers: T5 with a mixture of experts in every other layer. Fedus et al., arXiv:2101.03961.

Each token goes to the one expert its router likes best; an expert takes at most `capacity` tokens of each
sequence, in their order, and tokens beyond it skip the layer. The capacity is fixed, so no shape depends on
the data.
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
from foretrain.workloads.zoo.catalogue import AttentionKind, Sizes
from foretrain.workloads.zoo.layers import Attention, Block, FeedForward, across, causal_bias
from foretrain.workloads.zoo.tasks import sequence_to_sequence


class Seq2Seq(nn.Module):
    """Encoder LSTM (half as wide in each direction if it runs both ways), decoder LSTM, attention, output."""

    def __init__(
        self, vocabulary: int, embedding: int, width: int, layers: int, dropout: float, *, bidirectional: bool
    ) -> None:
        super().__init__()
        self.bidirectional = bidirectional
        self.source = nn.Embedding(vocabulary, embedding)
        self.target = nn.Embedding(vocabulary, embedding)
        self.encoder = nn.LSTM(
            embedding,
            width // 2 if bidirectional else width,
            layers,
            batch_first=True,
            dropout=dropout,
            bidirectional=bidirectional,
        )
        self.decoder = nn.LSTM(embedding, width, layers, batch_first=True, dropout=dropout)
        self.score = nn.Linear(width, width, bias=False)
        self.combine = nn.Linear(2 * width, width, bias=False)
        self.output = nn.Linear(width, vocabulary)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory, (hidden, cell) = self.encoder(self.source(source))
        state = (self._bridge(hidden), self._bridge(cell))
        decoded, _ = self.decoder(self.target(target), state)
        weights = (self.score(decoded) @ memory.transpose(1, 2)).softmax(dim=-1)
        attended = self.combine(torch.cat((weights @ memory, decoded), dim=-1))
        logits: Tensor = self.output(attended)
        return logits

    def _bridge(self, state: Tensor) -> Tensor:
        """The encoder's last state as the decoder's first: both directions of a layer side by side."""
        if not self.bidirectional:
            return state
        return torch.cat((state[0::2], state[1::2]), dim=-1)


def nmt(
    sizes: Sizes,
    *,
    vocabulary: int,
    embedding: int,
    width: int,
    layers: int,
    bidirectional: bool,
    dropout: float = 0.3,
) -> Example:
    """A recurrent translation model."""
    module = Seq2Seq(vocabulary, embedding, width, layers, dropout, bidirectional=bidirectional)
    return sequence_to_sequence(module, sizes, vocabulary=vocabulary)


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


class SwitchFeedForward(nn.Module):
    """Routes each token to one of several feed-forward networks and scales the answer by the router's trust.

    `balance` is the load-balancing loss of the last forward pass: experts · Σ (share of tokens · mean
    probability), 1 when all experts are used equally.
    """

    def __init__(self, config: T5Config, experts: int, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.router = nn.Linear(config.width, experts, bias=False)
        self.experts = nn.ModuleList(config.feed_forward() for _ in range(experts))
        self.balance: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        probability = self.router(x).softmax(dim=-1)
        trust, expert = probability.max(dim=-1)
        chosen = functional.one_hot(expert, len(self.experts))
        self.balance = (
            len(self.experts) * (chosen.float().mean(dim=(0, 1)) * probability.mean(dim=(0, 1))).sum()
        )

        kept = chosen * (chosen.cumsum(dim=1) <= self.capacity)
        filled, token = kept.transpose(1, 2).topk(min(self.capacity, x.size(1)), dim=-1)
        outputs = [
            network(x.gather(1, across(slots, x)))
            for network, slots in zip(self.experts, token.unbind(1), strict=True)
        ]
        weight = filled.flatten(1) * trust.gather(1, token.flatten(1))
        output: Tensor = torch.cat(outputs, dim=1) * weight.unsqueeze(-1)
        return output.new_zeros(x.shape).scatter_add(1, across(token.flatten(1), x), output)


class Switch(nn.Module):
    """The text-to-text model; returns the logits and the mean load-balancing loss of its sparse layers."""

    def __init__(self, model: T5) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.model(source, target)
        sparse = [module for module in self.modules() if isinstance(module, SwitchFeedForward)]
        return logits, torch.stack([layer.balance for layer in sparse if layer.balance is not None]).mean()


def switch(
    sizes: Sizes,
    *,
    experts: int,
    capacity: int,
    sparse_step: int = 2,
    balance_weight: float = 0.01,
    **config: object,
) -> Example:
    """A Switch Transformer, sparse in each `sparse_step`-th layer; `config` has the fields of `T5Config`."""
    settings = T5Config(**config)  # type: ignore[arg-type]

    def feed_forward(layer: int) -> nn.Module:
        sparse = (layer + 1) % sparse_step == 0
        return SwitchFeedForward(settings, experts, capacity) if sparse else settings.feed_forward()

    module = Switch(T5(settings, sizes.attention, feed_forward))
    return sequence_to_sequence(
        module, sizes, vocabulary=settings.vocabulary, regulariser_weight=balance_weight
    )
