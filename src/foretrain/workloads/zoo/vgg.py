"""VGG without batch norm. Simonyan and Zisserman, arXiv:1409.1556, configurations A, D and E."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from foretrain.workloads.example import Example
from foretrain.workloads.zoo.catalogue import Sizes
from foretrain.workloads.zoo.tasks import image_classification

_WIDTHS = (64, 128, 256, 512, 512)


def vgg(sizes: Sizes, *, convolutions: Sequence[int], classes: int = 1000, dropout: float = 0.5) -> Example:
    """VGG with that many 3x3 convolutions in each of its five stages."""
    layers: list[nn.Module] = []
    channels = 3
    for width, count in zip(_WIDTHS, convolutions, strict=True):
        for _ in range(count):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
            channels = width
        layers.append(nn.MaxPool2d(2))
    module = nn.Sequential(
        *layers,
        nn.AdaptiveAvgPool2d(7),
        nn.Flatten(),
        nn.Linear(512 * 7 * 7, 4096),
        nn.ReLU(inplace=True),
        nn.Dropout(dropout),
        nn.Linear(4096, 4096),
        nn.ReLU(inplace=True),
        nn.Dropout(dropout),
        nn.Linear(4096, classes),
    )
    return image_classification(module, sizes, classes=classes)
