"""The thin residual networks for 32x32 images. He et al., arXiv:1512.03385, section 4.2.

6n+2 layers: three stages of n blocks with 16, 32 and 64 channels. Where a stage halves the image, the
shortcut takes every other pixel and pads the new channels with zeros (option A), so it has no parameters.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from foretrain.workloads.example import Example
from foretrain.workloads.zoo.catalogue import Sizes
from foretrain.workloads.zoo.convolutions import conv_norm, conv_norm_relu
from foretrain.workloads.zoo.tasks import image_classification

_WIDTHS = (16, 32, 64)


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
    layers: list[nn.Module] = [conv_norm_relu(3, _WIDTHS[0], 3)]
    inputs = _WIDTHS[0]
    for stage, width in enumerate(_WIDTHS):
        for index in range(blocks_per_stage):
            layers.append(ThinBlock(inputs, width, 2 if stage > 0 and index == 0 else 1))
            inputs = width
    module = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))
    return image_classification(module, sizes, classes=classes)
