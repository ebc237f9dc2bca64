"""Densely connected networks. Huang et al., arXiv:1608.06993.

A dense layer appends `growth` channels to its input. The ImageNet networks (BC) squeeze the input to four
times the growth by a 1x1 convolution first and halve the channels between blocks; the first CIFAR networks do
neither.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from foretrain.workloads.example import Example
from foretrain.workloads.zoo.catalogue import Sizes
from foretrain.workloads.zoo.convolutions import conv_norm_relu
from foretrain.workloads.zoo.tasks import image_classification

_BOTTLENECK = 4


def _norm_relu_conv(inputs: int, outputs: int, kernel: int) -> list[nn.Module]:
    return [
        nn.BatchNorm2d(inputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False),
    ]


class DenseLayer(nn.Module):
    """cat(x, new features of x)."""

    def __init__(self, inputs: int, growth: int, *, bottleneck: bool) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        if bottleneck:
            layers += _norm_relu_conv(inputs, _BOTTLENECK * growth, 1)
            inputs = _BOTTLENECK * growth
        self.features = nn.Sequential(*layers, *_norm_relu_conv(inputs, growth, 3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((x, self.features(x)), dim=1)


def densenet(
    sizes: Sizes,
    *,
    blocks: Sequence[int],
    growth: int,
    stem: str,
    stem_channels: int,
    compressed: bool,
    classes: int = 1000,
) -> Example:
    """A DenseNet; `stem` is imagenet (7x7 convolution and pooling) or cifar (one 3x3 convolution).

    `compressed` (BC) turns on both the bottlenecks and the halving of channels in the transitions.
    """
    layers: list[nn.Module] = []
    if stem == "imagenet":
        layers += [
            conv_norm_relu(3, stem_channels, 7, stride=2),
            nn.MaxPool2d(3, stride=2, padding=1),
        ]
    else:
        layers.append(nn.Conv2d(3, stem_channels, 3, padding=1, bias=False))
    channels = stem_channels
    for index, count in enumerate(blocks):
        if index > 0:
            outputs = channels // 2 if compressed else channels
            layers += [*_norm_relu_conv(channels, outputs, 1), nn.AvgPool2d(2)]
            channels = outputs
        for _ in range(count):
            layers.append(DenseLayer(channels, growth, bottleneck=compressed))
            channels += growth
    module = nn.Sequential(
        *layers,
        nn.BatchNorm2d(channels),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(channels, classes),
    )
    return image_classification(module, sizes, classes=classes)
