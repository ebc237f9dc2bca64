"""Three small models in four blocks each, which every strategy can cut: what the experiments train.

`FILE.py:traced_mlp` and its siblings are the same models as workloads of `foretrain predict`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretrain.errors import UnknownName

_Traced = tuple[nn.Module, Tensor, Callable[[Tensor], Tensor]]
CLASSES = 1000
_PIXELS = 32
_TOKENS, _VOCABULARY, _WIDTH, _HEADS = 64, 2000, 256, 4


@dataclass(frozen=True)
class Example:
    """A model with a batch of made-up samples; its blocks in a row are the whole model."""

    blocks: tuple[nn.Module, ...]
    inputs: Tensor
    targets: Tensor

    @property
    def module(self) -> nn.Sequential:
        """The whole model."""
        return nn.Sequential(*self.blocks)


def example(name: str, batch: int) -> Example:
    """The model called `name`, always with the same weights, and a batch for it."""
    if name not in MODELS:
        raise UnknownName("model of the distributed trials", name, MODELS)
    torch.manual_seed(0)
    return MODELS[name](batch)


def loss_of(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy over the last dimension."""
    return functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())


def _mlp(batch: int) -> Example:
    """Fully connected layers, 12.5 million parameters."""
    widths = (1024, 2048, 2048, 2048)
    hidden = (nn.Sequential(nn.Linear(inner, outer), nn.ReLU()) for inner, outer in pairwise(widths))
    blocks = (*hidden, nn.Linear(widths[-1], CLASSES))
    return Example(blocks, torch.randn(batch, widths[0]), torch.randint(CLASSES, (batch,)))


class _Residual(nn.Module):
    """Two convolutions with a way around them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(_convolution(channels, channels), _convolution(channels, channels))

    def forward(self, images: Tensor) -> Tensor:
        changed: Tensor = self.body(images)
        return images + changed


def _convolution(inner: int, outer: int, stride: int = 1) -> nn.Module:
    return nn.Sequential(nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer), nn.ReLU())


def _convnet(batch: int) -> Example:
    """A residual network on images of 32 x 32, 1.3 million parameters."""
    blocks = (
        nn.Sequential(_convolution(3, 24), _Residual(24)),
        nn.Sequential(_convolution(24, 48, 2), _Residual(48)),
        nn.Sequential(_convolution(48, 96, 2), _Residual(96)),
        nn.Sequential(
            _convolution(96, 192, 2),
            _Residual(192),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(192, CLASSES),
        ),
    )
    return Example(blocks, torch.randn(batch, 3, _PIXELS, _PIXELS), torch.randint(CLASSES, (batch,)))


class _Embedding(nn.Module):
    """Tokens and their places as vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(_VOCABULARY, _WIDTH)
        self.places = nn.Parameter(0.02 * torch.randn(_TOKENS, _WIDTH))

    def forward(self, tokens: Tensor) -> Tensor:
        embedded: Tensor = self.tokens(tokens)
        return embedded + self.places


class _Layer(nn.Module):
    """One transformer layer, normalised first."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.LayerNorm(_WIDTH)
        self.mixing = nn.Linear(_WIDTH, 3 * _WIDTH)
        self.joining = nn.Linear(_WIDTH, _WIDTH)
        self.between = nn.LayerNorm(_WIDTH)
        self.feeding = nn.Sequential(nn.Linear(_WIDTH, 4 * _WIDTH), nn.GELU(), nn.Linear(4 * _WIDTH, _WIDTH))

    def forward(self, hidden: Tensor) -> Tensor:
        batch, tokens, width = hidden.shape
        split = self.mixing(self.before(hidden)).view(batch, tokens, 3, _HEADS, width // _HEADS)
        queries, keys, values = split.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        hidden = hidden + self.joining(mixed.transpose(1, 2).reshape(batch, tokens, width))
        changed: Tensor = self.feeding(self.between(hidden))
        return hidden + changed


def _transformer(batch: int) -> Example:
    """Four transformer layers over 64 tokens, 4.2 million parameters."""
    blocks = (
        nn.Sequential(_Embedding(), _Layer()),
        _Layer(),
        _Layer(),
        nn.Sequential(_Layer(), nn.LayerNorm(_WIDTH), nn.Linear(_WIDTH, _VOCABULARY)),
    )
    tokens = torch.randint(_VOCABULARY, (batch, _TOKENS))
    return Example(blocks, tokens, torch.randint(_VOCABULARY, (batch, _TOKENS)))


MODELS: dict[str, Callable[[int], Example]] = {
    "mlp": _mlp,
    "convnet": _convnet,
    "transformer": _transformer,
}
"""Each made for a batch size."""


def traced_mlp(batch: int) -> _Traced:
    """For `foretrain ... FILE.py:traced_mlp`."""
    return _as_traced(example("mlp", batch))


def traced_convnet(batch: int) -> _Traced:
    """For `foretrain ... FILE.py:traced_convnet`."""
    return _as_traced(example("convnet", batch))


def traced_transformer(batch: int) -> _Traced:
    """For `foretrain ... FILE.py:traced_transformer`."""
    return _as_traced(example("transformer", batch))


def _as_traced(made: Example) -> _Traced:
    return made.module, made.inputs, lambda outputs: loss_of(outputs, made.targets.to(outputs.device))
