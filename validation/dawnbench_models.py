"""ResNet-164 for 32x32 images with norms before the convolutions, of two 3x3 convolutions a block or with
bottlenecks. He et al., arXiv:1603.05027, table 3 and its appendix.

Read as `dawnbench_models.py:preact_basic_164`, as a user's own model would be.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

_DEPTH = 164
_WIDTHS = (16, 32, 64)
_CLASSES = 10
_EXPANSION = 4
Step = tuple[nn.Module, Tensor, Callable[[Tensor], Tensor]]


class PreactBlock(nn.Module):
    """x + convolutions of (channels, kernel), each after a norm and a ReLU; a 1x1 shortcut where needed."""

    def __init__(self, inputs: int, convolutions: list[tuple[int, int]], stride: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        width, left = inputs, stride
        for outputs, kernel in convolutions:
            step = left if kernel > 1 else 1  # the first 3x3 convolution halves the image
            left = left // step
            layers += [nn.BatchNorm2d(width), nn.ReLU()]
            layers.append(nn.Conv2d(width, outputs, kernel, step, kernel // 2, bias=False))
            width = outputs
        self.first, self.rest = nn.Sequential(*layers[:2]), nn.Sequential(*layers[2:])
        fits = stride == 1 and inputs == width
        self.shortcut = None if fits else nn.Conv2d(inputs, width, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        active = self.first(x)
        shortcut = x if self.shortcut is None else self.shortcut(active)
        output: Tensor = self.rest(active) + shortcut
        return output


def preact_basic_164(batch: int, image_size: int) -> Step:
    """Blocks of two 3x3 convolutions."""
    return _step(lambda width: [(width, 3), (width, 3)], 1, batch, image_size)


def preact_bottleneck_164(batch: int, image_size: int) -> Step:
    """Blocks of a 1x1, a 3x3 and a widening 1x1 convolution."""
    return _step(
        lambda width: [(width, 1), (width, 3), (_EXPANSION * width, 1)], _EXPANSION, batch, image_size
    )


def _step(block: Callable[[int], list[tuple[int, int]]], expansion: int, batch: int, image_size: int) -> Step:
    blocks = (_DEPTH - 2) // (3 * len(block(1)))
    layers: list[nn.Module] = [nn.Conv2d(3, _WIDTHS[0], 3, padding=1, bias=False)]
    inputs = _WIDTHS[0]
    for stage, width in enumerate(_WIDTHS):
        for index in range(blocks):
            layers.append(PreactBlock(inputs, block(width), 2 if stage and not index else 1))
            inputs = expansion * width
    layers += [nn.BatchNorm2d(inputs), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    module = nn.Sequential(*layers, nn.Linear(inputs, _CLASSES))
    targets = torch.randint(_CLASSES, (batch,))
    return (
        module,
        torch.rand(batch, 3, image_size, image_size),
        lambda logits: functional.cross_entropy(logits, targets),
    )
