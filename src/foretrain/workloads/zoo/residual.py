"""Convolutional networks with skip connections: ResNet, its CIFAR variant, DenseNet, MobileNetV2.

Residual networks, with the stride in the 3x3 convolution. He et al., arXiv:1512.03385.

The thin residual networks for 32x32 images. He et al., arXiv:1512.03385, section 4.2.

6n+2 layers: three stages of n blocks with 16, 32 and 64 channels. Where a stage halves the image, the
shortcut takes every other pixel and pads the new channels with zeros (option A), so it has no parameters.

Densely connected networks. Huang et al., arXiv:1608.06993.

A dense layer appends `growth` channels to its input. The ImageNet networks (BC) squeeze the input to four
times the growth by a 1x1 convolution first and halve the channels between blocks; the first CIFAR networks do
neither.

MobileNetV2. Sandler et al., arXiv:1801.04381.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretrain.workloads.example import Example
from foretrain.workloads.zoo.catalogue import Sizes
from foretrain.workloads.zoo.layers import conv_norm, conv_norm_relu
from foretrain.workloads.zoo.tasks import image_classification

_WIDTHS = (64, 128, 256, 512)
_EXPANSION = {"basic": 1, "bottleneck": 4}


class ResidualBlock(nn.Module):
    """relu(body(x) + shortcut(x)): two 3x3 convolutions (basic) or 1x1, 3x3, 1x1 (bottleneck)."""

    def __init__(self, inputs: int, width: int, stride: int, kind: str) -> None:
        super().__init__()
        outputs = width * _EXPANSION[kind]
        if kind == "basic":
            body = [conv_norm_relu(inputs, width, 3, stride=stride), conv_norm(width, outputs, 3)]
        else:
            body = [
                conv_norm_relu(inputs, width),
                conv_norm_relu(width, width, 3, stride=stride),
                conv_norm(width, outputs),
            ]
        self.body = nn.Sequential(*body)
        same_shape = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same_shape else conv_norm(inputs, outputs, stride=stride)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.relu(self.body(x) + self.shortcut(x))
        return output


def resnet(
    sizes: Sizes,
    *,
    block: str,
    blocks: Sequence[int],
    channels: int = 3,
    stem_kernel: int = 7,
    classes: int = 1000,
) -> Example:
    """A ResNet of four stages; `block` is basic or bottleneck, `blocks` how many each stage has."""
    stages: list[nn.Module] = []
    inputs = _WIDTHS[0]
    for stage, (width, count) in enumerate(zip(_WIDTHS, blocks, strict=True)):
        for index in range(count):
            stride = 2 if stage > 0 and index == 0 else 1
            stages.append(ResidualBlock(inputs, width, stride, block))
            inputs = width * _EXPANSION[block]
    module = nn.Sequential(
        conv_norm_relu(channels, _WIDTHS[0], stem_kernel, stride=2),
        nn.MaxPool2d(3, stride=2, padding=1),
        *stages,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(inputs, classes),
    )
    return image_classification(module, sizes, classes=classes, channels=channels)


_CIFAR_WIDTHS = (16, 32, 64)


class ThinBlock(nn.Module):
    """relu(two 3x3 convolutions + parameter-free shortcut)."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(conv_norm_relu(inputs, width, 3, stride=stride), conv_norm(width, width, 3))
        self.stride = stride
        self.added_channels = width - inputs

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.body(x)
        if self.added_channels:
            half = self.added_channels // 2
            x = x[:, :, :: self.stride, :: self.stride]
            x = functional.pad(x, (0, 0, 0, 0, half, self.added_channels - half))
        return functional.relu(output + x)


def cifar_resnet(sizes: Sizes, *, depth: int, classes: int = 10) -> Example:
    """ResNet-`depth` for CIFAR, depth = 6n+2."""
    blocks_per_stage = (depth - 2) // 6
    layers: list[nn.Module] = [conv_norm_relu(3, _CIFAR_WIDTHS[0], 3)]
    inputs = _CIFAR_WIDTHS[0]
    for stage, width in enumerate(_CIFAR_WIDTHS):
        for index in range(blocks_per_stage):
            layers.append(ThinBlock(inputs, width, 2 if stage > 0 and index == 0 else 1))
            inputs = width
    module = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))
    return image_classification(module, sizes, classes=classes)


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


# expansion, channels, repeats, stride of the first: table 2 of the paper
_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def _conv_relu6(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    relu6 = nn.ReLU6(inplace=True)
    return conv_norm(inputs, outputs, kernel, stride=stride, groups=groups, activation=relu6)


class InvertedResidual(nn.Module):
    """Expand by a 1x1, filter each channel by a 3x3, project by a 1x1; add the input if shapes agree."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        expand = [_conv_relu6(inputs, hidden, 1)] if expansion != 1 else []
        self.body = nn.Sequential(
            *expand, _conv_relu6(hidden, hidden, 3, stride, groups=hidden), conv_norm(hidden, outputs)
        )
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.body(x)
        return x + output if self.residual else output


def mobilenet_v2(sizes: Sizes, *, classes: int = 1000, dropout: float = 0.2) -> Example:
    """MobileNetV2 of width 1."""
    layers: list[nn.Module] = [_conv_relu6(3, 32, 3, 2)]
    inputs = 32
    for expansion, outputs, repeats, first_stride in _STAGES:
        for index in range(repeats):
            layers.append(InvertedResidual(inputs, outputs, first_stride if index == 0 else 1, expansion))
            inputs = outputs
    module = nn.Sequential(
        *layers,
        _conv_relu6(inputs, 1280, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(1280, classes),
    )
    return image_classification(module, sizes, classes=classes)
