"""Residual networks, with the stride in the 3x3 convolution. He et al., arXiv:1512.03385."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from foretrain.workloads.example import Example
from foretrain.workloads.zoo.catalogue import Sizes
from foretrain.workloads.zoo.convolutions import conv_norm, conv_norm_relu
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
