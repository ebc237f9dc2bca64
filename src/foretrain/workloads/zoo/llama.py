"""Llama: decoder-only, RMS norm, rotary positions, grouped queries, SwiGLU, no biases.

Touvron et al., arXiv:2302.13971 and arXiv:2307.09288; Grattafiori et al., arXiv:2407.21783. The stretching of
the rotary angles in Llama 3.1 and later changes their values, not their cost, and is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn
from torch.nn import functional

from foretrain.workloads.example import Example
from foretrain.workloads.zoo.attention import Attention, rotary_angles
from foretrain.workloads.zoo.blocks import Block, SwiGLU
from foretrain.workloads.zoo.catalogue import AttentionKind, Sizes
from foretrain.workloads.zoo.fused_kernels import FusedRMSNorm
from foretrain.workloads.zoo.tasks import language_modelling


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaConfig:
    """The architecture; `tied` reuses the embedding as the output layer.

    `fused_kernels` are those of training frameworks: norm and rotary positions in one kernel each, queries,
    keys and values by one product, gate and up by another.
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


class Llama(nn.Module):
    """Embedding, blocks, a last norm, logits."""

    def __init__(self, config: LlamaConfig, attention: AttentionKind) -> None:
        super().__init__()
        self.head_width = config.width // config.heads
        self.rotary_base = config.rotary_base
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.blocks = nn.ModuleList(_block(config, attention) for _ in range(config.layers))
        self.norm = _norm(config)()
        self.output = None if config.tied else nn.Linear(config.width, config.vocabulary, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x: Tensor = self.tokens(ids)
        rotary = rotary_angles(ids.size(1), self.head_width, self.rotary_base, like=x)
        for block in self.blocks:
            x = block(x, rotary=rotary)
        x = self.norm(x)
        return functional.linear(x, self.tokens.weight if self.output is None else self.output.weight)


def _block(config: LlamaConfig, attention: AttentionKind) -> Block:
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
        ),
        SwiGLU(config.width, config.hidden, merged=config.fused_kernels),
        _norm(config),
    )


def _norm(config: LlamaConfig) -> partial[nn.Module]:
    kind: type[nn.Module] = FusedRMSNorm if config.fused_kernels else nn.RMSNorm
    return partial(kind, config.width, eps=config.norm_eps)


def llama(sizes: Sizes, **config: object) -> Example:
    """A causal language model; `config` holds the fields of `LlamaConfig`."""
    settings = LlamaConfig(**config)  # type: ignore[arg-type]
    module = Llama(settings, sizes.attention)
    return language_modelling(module, sizes, vocabulary=settings.vocabulary)
