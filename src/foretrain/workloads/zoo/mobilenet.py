"""MobileNetV2. Sandler et al., arXiv:1801.04381."""

from __future__ import annotations

from torch import Tensor, nn

from foretrain.workloads.example import Example
from foretrain.workloads.zoo.catalogue import Sizes
from foretrain.workloads.zoo.convolutions import conv_norm
from foretrain.workloads.zoo.tasks import image_classification

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
