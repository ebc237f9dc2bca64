"""GoogLeNet (Inception v1). Szegedy et al., arXiv:1409.4842.

As commonly trained today: batch norm after each convolution, and a 3x3 in place of the 5x5 branch's kernel.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from foretrain.workloads.example import Example
from foretrain.workloads.zoo.catalogue import Sizes
from foretrain.workloads.zoo.convolutions import conv_norm_relu
from foretrain.workloads.zoo.tasks import image_classification

_EPS = 0.001
_AUXILIARY_WEIGHT = 0.3


def _conv(inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> nn.Sequential:
    return conv_norm_relu(inputs, outputs, kernel, stride=stride, eps=_EPS)


class Inception(nn.Module):
    """Four branches side by side: 1x1; 1x1 then 3x3; 1x1 then 3x3; pooling then 1x1."""

    def __init__(
        self, inputs: int, one: int, squeeze_a: int, three_a: int, squeeze_b: int, three_b: int, pooled: int
    ) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            [
                _conv(inputs, one),
                nn.Sequential(_conv(inputs, squeeze_a), _conv(squeeze_a, three_a, 3)),
                nn.Sequential(_conv(inputs, squeeze_b), _conv(squeeze_b, three_b, 3)),
                nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1, ceil_mode=True), _conv(inputs, pooled)),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], dim=1)


class GoogLeNet(nn.Module):
    """Stem, three groups of inception modules, a classifier, two auxiliary ones after modules 4a and 4d."""

    def __init__(self, classes: int, *, auxiliaries: bool) -> None:
        super().__init__()
        self.stem = nn.Sequential(_conv(3, 64, 7, 2), _pool(), _conv(64, 64), _conv(64, 192, 3), _pool())
        self.to_4a = nn.Sequential(
            Inception(192, 64, 96, 128, 16, 32, 32),
            Inception(256, 128, 128, 192, 32, 96, 64),
            _pool(),
            Inception(480, 192, 96, 208, 16, 48, 64),
        )
        self.to_4d = nn.Sequential(
            Inception(512, 160, 112, 224, 24, 64, 64),
            Inception(512, 128, 128, 256, 24, 64, 64),
            Inception(512, 112, 144, 288, 32, 64, 64),
        )
        self.to_5b = nn.Sequential(
            Inception(528, 256, 160, 320, 32, 128, 128),
            nn.MaxPool2d(2, stride=2, ceil_mode=True),
            Inception(832, 256, 160, 320, 32, 128, 128),
            Inception(832, 384, 192, 384, 48, 128, 128),
        )
        self.classifier = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(1024, classes)
        )
        self.auxiliary_4a = _auxiliary(512, classes) if auxiliaries else None
        self.auxiliary_4d = _auxiliary(528, classes) if auxiliaries else None

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        after_4a = self.to_4a(self.stem(x))
        after_4d = self.to_4d(after_4a)
        outputs = [self.classifier(self.to_5b(after_4d))]
        if self.auxiliary_4a is not None and self.auxiliary_4d is not None:
            outputs += [self.auxiliary_4a(after_4a), self.auxiliary_4d(after_4d)]
        return tuple(outputs)


def _pool() -> nn.Module:
    return nn.MaxPool2d(3, stride=2, ceil_mode=True)


def _auxiliary(inputs: int, classes: int) -> nn.Sequential:
    return nn.Sequential(
        nn.AdaptiveAvgPool2d(4),
        _conv(inputs, 128),
        nn.Flatten(),
        nn.Linear(2048, 1024),
        nn.ReLU(inplace=True),
        nn.Dropout(0.7),
        nn.Linear(1024, classes),
    )


def googlenet(sizes: Sizes, *, auxiliaries: bool, classes: int = 1000) -> Example:
    """GoogLeNet; the auxiliary classifiers, if any, weigh 0.3 each in the loss, as in the paper."""
    module = GoogLeNet(classes, auxiliaries=auxiliaries)
    return image_classification(module, sizes, classes=classes, auxiliary_weight=_AUXILIARY_WEIGHT)
