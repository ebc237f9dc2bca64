"""Transformer encoders: BERT and the vision transformer.

BERT with its masked-language-model head, or with a classifier. Devlin et al., arXiv:1810.04805.

Vision transformers. Dosovitskiy et al., arXiv:2010.11929.

Transformer decoders: GPT and Llama.

Decoder-only transformers with learned positions: GPT-2, GPT-3 and OPT.

Radford et al., "Language Models are Unsupervised Multitask Learners" (2019); Brown et al., arXiv:2005.14165;
Zhang et al., arXiv:2205.01068. GPT-3 alternates dense and locally banded sparse attention; here all is dense.

Llama: decoder-only, RMS norm, rotary positions, grouped queries, SwiGLU, no biases.

Touvron et al., arXiv:2302.13971 and arXiv:2307.09288; Grattafiori et al., arXiv:2407.21783. The stretching of
the rotary angles in Llama 3.1 and later changes their values, not their cost, and is left out. Mistral,
Mixtral, Qwen and Gemma are Llamas with a bias, more norms, other heads or experts: Jiang et al.,
arXiv:2310.06825 and arXiv:2401.04088; Qwen Team, arXiv:2412.15115 and arXiv:2505.09388; Gemma Team,
arXiv:2408.00118 and arXiv:2503.19786.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretrain.workloads.example import Example
from foretrain.workloads.zoo.catalogue import AttentionKind, Sizes
from foretrain.workloads.zoo.layers import (
    ACTIVATIONS,
    Attention,
    Block,
    CastingRMSNorm,
    FeedForward,
    FusedRMSNorm,
    SparseSwiGLU,
    SwiGLU,
    rotary_angles,
)
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
        self.blocks = nn.ModuleList(_gpt_block(config, attention) for _ in range(config.layers))
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


def _gpt_block(config: GptConfig, attention: AttentionKind) -> Block:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaConfig:
    """The architecture; `tied` reuses the embedding as the output layer.

    `fused_kernels` are those of training frameworks: norm and rotary positions in one kernel each, queries,
    keys and values by one product, gate and up by another. `qkv_bias` is of Qwen 2, `head_norm` (of queries
    and keys) of Qwen 3. With `experts`, each token is sent to `experts_per_token` networks of `hidden` width.
    `gemma` scales embeddings, gates by GELU and norms the output of sublayers too; `logit_cap` is of Gemma 2.
    With a `window` layers attend to the last `window` tokens, but for each `global_every`-th, which attends
    to all; `local_rotary_base` is that of layers with a window, where it is another.
    """

    layers: int
    width: int
    hidden: int
    heads: int
    kv_heads: int
    vocabulary: int
    tied: bool = False
    rotary_base: float = 10_000.0
    norm_eps: float = 1e-5
    fused_kernels: bool = False
    head_width: int | None = None
    qkv_bias: bool = False
    head_norm: bool = False
    experts: int = 0
    experts_per_token: int = 0
    gemma: bool = False
    logit_cap: float | None = None
    window: int = 0
    global_every: int = 0
    local_rotary_base: float | None = None

    def window_of(self, layer: int) -> int:
        """The window of a layer; 0 where it attends to all tokens."""
        return 0 if self.global_every and (layer + 1) % self.global_every == 0 else self.window


class Llama(nn.Module):
    """Embedding, blocks, a last norm, logits."""

    def __init__(self, config: LlamaConfig, attention: AttentionKind) -> None:
        super().__init__()
        self.head_width = config.head_width or config.width // config.heads
        self.scale = config.width**0.5 if config.gemma else None
        self.rotary_base, self.local_rotary_base = config.rotary_base, config.local_rotary_base
        self.is_local = [bool(config.window_of(layer)) for layer in range(config.layers)]
        self.logit_cap = config.logit_cap
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.blocks = nn.ModuleList(_llama_block(config, attention, layer) for layer in range(config.layers))
        self.norm = _norm(config)()
        self.output = None if config.tied else nn.Linear(config.width, config.vocabulary, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x: Tensor = self.tokens(ids)
        if self.scale is not None:
            x = x * self.scale
        rotary = local = rotary_angles(ids.size(1), self.head_width, self.rotary_base, like=x)
        if self.local_rotary_base is not None:
            local = rotary_angles(ids.size(1), self.head_width, self.local_rotary_base, like=x)
        for block, is_local in zip(self.blocks, self.is_local, strict=True):
            x = block(x, rotary=local if is_local else rotary)
        x = self.norm(x)
        logits = functional.linear(x, self.tokens.weight if self.output is None else self.output.weight)
        return logits if self.logit_cap is None else self.logit_cap * torch.tanh(logits / self.logit_cap)


def _llama_block(config: LlamaConfig, attention: AttentionKind, layer: int) -> Block:
    return Block(
        Attention(
            config.width,
            config.heads,
            kind=attention,
            causal=True,
            kv_heads=config.kv_heads,
            linear_bias=False,
            fused=config.fused_kernels,
            fused_kernels=config.fused_kernels,
            head_width=config.head_width,
            input_bias=config.qkv_bias,
            head_norm=partial(CastingRMSNorm, eps=config.norm_eps) if config.head_norm else None,
            window=config.window_of(layer),
        ),
        _feed_forward(config),
        _norm(config),
        norm_after=config.gemma,
    )


def _feed_forward(config: LlamaConfig) -> nn.Module:
    if config.experts:
        return SparseSwiGLU(config.width, config.hidden, config.experts, config.experts_per_token)
    activation = ACTIVATIONS["gelu-tanh"] if config.gemma else nn.SiLU
    return SwiGLU(config.width, config.hidden, merged=config.fused_kernels, activation=activation)


def _norm(config: LlamaConfig) -> partial[nn.Module]:
    plain = CastingRMSNorm if config.gemma else nn.RMSNorm
    kind: type[nn.Module] = FusedRMSNorm if config.fused_kernels else plain
    return partial(kind, config.width, eps=config.norm_eps)


def llama(sizes: Sizes, **config: object) -> Example:
    """A causal language model; `config` holds the fields of `LlamaConfig`."""
    settings = LlamaConfig(**config)  # type: ignore[arg-type]
    module = Llama(settings, sizes.attention)
    return language_modelling(module, sizes, vocabulary=settings.vocabulary)
