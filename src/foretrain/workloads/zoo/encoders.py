"""Transformer encoders: BERT and the vision transformer.

BERT with its masked-language-model head, or with a classifier. Devlin et al., arXiv:1810.04805.

Vision transformers. Dosovitskiy et al., arXiv:2010.11929.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretrain.workloads.example import Example
from foretrain.workloads.zoo.catalogue import AttentionKind, Sizes
from foretrain.workloads.zoo.layers import Attention, Block, FeedForward
from foretrain.workloads.zoo.tasks import image_classification, language_modelling, text_classification

_EPS = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class BertConfig:
    """The architecture. With `classes`, sequences are classified and no token is predicted."""

    layers: int
    width: int
    heads: int
    hidden: int
    vocabulary: int = 30522
    positions: int = 512
    segments: int = 2
    dropout: float = 0.1
    classes: int | None = None


class Bert(nn.Module):
    """Embeddings, blocks with the norm after, and a head.

    The decoder of the masked-language-model head is the transposed embedding; a classifier reads the first
    token alone.
    """

    def __init__(self, config: BertConfig, attention: AttentionKind) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.positions, config.width)
        self.segments = nn.Embedding(config.segments, config.width)
        self.norm = nn.LayerNorm(config.width, eps=_EPS)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(_block(config, attention) for _ in range(config.layers))
        self.classifier = None if config.classes is None else _classifier(config, config.classes)
        if self.classifier is None:
            self.transform = nn.Sequential(
                nn.Linear(config.width, config.width), nn.GELU(), nn.LayerNorm(config.width, eps=_EPS)
            )
            self.decoder_bias = nn.Parameter(torch.zeros(config.vocabulary))

    def forward(self, ids: Tensor) -> Tensor:
        positions = torch.arange(ids.size(1), device=ids.device)
        x = self.tokens(ids) + self.segments(torch.zeros_like(ids)) + self.positions(positions)
        x = self.dropout(self.norm(x))
        for block in self.blocks:
            x = block(x)
        if self.classifier is not None:
            classes: Tensor = self.classifier(x[:, 0])
            return classes
        return functional.linear(self.transform(x), self.tokens.weight, self.decoder_bias)


def _classifier(config: BertConfig, classes: int) -> nn.Sequential:
    """The pooler and one linear layer."""
    return nn.Sequential(
        nn.Linear(config.width, config.width),
        nn.Tanh(),
        nn.Dropout(config.dropout),
        nn.Linear(config.width, classes),
    )


def _block(config: BertConfig, attention: AttentionKind) -> Block:
    return Block(
        Attention(config.width, config.heads, kind=attention, dropout=config.dropout),
        FeedForward(config.width, config.hidden, "gelu"),
        partial(nn.LayerNorm, config.width, eps=_EPS),
        dropout=config.dropout,
        norm_first=False,
    )


def bert(sizes: Sizes, **config: object) -> Example:
    """A masked language model, or a classifier; `config` holds the fields of `BertConfig`."""
    settings = BertConfig(**config)  # type: ignore[arg-type]
    module = Bert(settings, sizes.attention)
    if settings.classes is not None:
        return text_classification(module, sizes, vocabulary=settings.vocabulary, classes=settings.classes)
    return language_modelling(module, sizes, vocabulary=settings.vocabulary)


_VIT_EPS = 1e-6


class VisionTransformer(nn.Module):
    """Patches by a strided convolution, a class token, learned positions, blocks, and a linear classifier."""

    def __init__(self, patch: int, image_size: int, width: int, classes: int, blocks: list[Block]) -> None:
        super().__init__()
        patches = (image_size // patch) ** 2
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, patches + 1, width))
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(width, eps=_VIT_EPS)
        self.classifier = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.class_token.expand(len(x), -1, -1), x), dim=1) + self.positions
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.classifier(self.norm(x)[:, 0])
        return logits


def vit(
    sizes: Sizes, *, patch: int, layers: int, width: int, heads: int, hidden: int, classes: int = 1000
) -> Example:
    """A ViT for images of the example's size, which sets the number of positions it learns."""
    blocks = [
        Block(
            Attention(width, heads, kind=sizes.attention, fused=True),
            FeedForward(width, hidden, "gelu"),
            partial(nn.LayerNorm, width, eps=_VIT_EPS),
        )
        for _ in range(layers)
    ]
    module = VisionTransformer(patch, sizes.image_size, width, classes, blocks)
    return image_classification(module, sizes, classes=classes)
