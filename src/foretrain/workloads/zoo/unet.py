"""U-Net. Ronneberger et al., arXiv:1505.04597, with padded convolutions and batch norm.

Padding keeps the size, so the mask is as large as the image and nothing is cropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretrain.workloads.example import Example
from foretrain.workloads.zoo.catalogue import Sizes
from foretrain.workloads.zoo.convolutions import conv_norm_relu


def _double(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(conv_norm_relu(inputs, outputs, 3), conv_norm_relu(outputs, outputs, 3))


class UNet(nn.Module):
    """An encoder that halves and a decoder that doubles the size, joined at each level by concatenation."""

    def __init__(self, channels: int, widths: Sequence[int], classes: int) -> None:
        super().__init__()
        pairs = list(pairwise(widths))
        self.first = _double(channels, widths[0])
        self.down = nn.ModuleList(
            nn.Sequential(nn.MaxPool2d(2), _double(upper, lower)) for upper, lower in pairs
        )
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(lower, upper, 2, stride=2) for upper, lower in reversed(pairs)
        )
        self.join = nn.ModuleList(_double(2 * upper, upper) for upper, _ in reversed(pairs))
        self.last = nn.Conv2d(widths[0], classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        levels = [self.first(x)]
        for down in self.down:
            levels.append(down(levels[-1]))
        x = levels.pop()
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat((levels.pop(), up(x)), dim=1))
        mask: Tensor = self.last(x)
        return mask


def unet(sizes: Sizes, *, widths: Sequence[int], channels: int, classes: int) -> Example:
    """A 2D U-Net with an image and a class for each of its pixels."""
    images = torch.rand(sizes.batch, channels, sizes.image_size, sizes.image_size)
    targets = torch.randint(classes, (sizes.batch, sizes.image_size, sizes.image_size))

    def loss(logits: Tensor) -> Tensor:
        return functional.cross_entropy(logits, targets)

    return Example(UNet(channels, widths, classes).train(), (images,), loss, samples=sizes.batch)
