"""Vision transformers. Dosovitskiy et al., arXiv:2010.11929."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from foretrain.workloads.example import Example
from foretrain.workloads.zoo.attention import Attention
from foretrain.workloads.zoo.blocks import Block, FeedForward
from foretrain.workloads.zoo.catalogue import Sizes
from foretrain.workloads.zoo.tasks import image_classification

_EPS = 1e-6


class VisionTransformer(nn.Module):
    """Patches by a strided convolution, a class token, learned positions, blocks, and a linear classifier."""

    def __init__(self, patch: int, image_size: int, width: int, classes: int, blocks: list[Block]) -> None:
        super().__init__()
        patches = (image_size // patch) ** 2
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, patches + 1, width))
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(width, eps=_EPS)
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
            partial(nn.LayerNorm, width, eps=_EPS),
        )
        for _ in range(layers)
    ]
    module = VisionTransformer(patch, sizes.image_size, width, classes, blocks)
    return image_classification(module, sizes, classes=classes)
