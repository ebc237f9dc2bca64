"""Modules of parallel branches, and auxiliary classifiers: GoogLeNet and Inception v3.

GoogLeNet (Inception v1). Szegedy et al., arXiv:1409.4842.

As commonly trained today: batch norm after each convolution, and a 3x3 in place of the 5x5 branch's kernel.

Inception v3. Szegedy et al., arXiv:1512.00567, with the widths of its public implementations.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from foretrain.workloads.example import Example
from foretrain.workloads.zoo.catalogue import Sizes
from foretrain.workloads.zoo.layers import Kernel, conv_norm_relu
from foretrain.workloads.zoo.tasks import image_classification

_GOOGLENET_EPS = 0.001
_GOOGLENET_AUXILIARY_WEIGHT = 0.3


def _googlenet_conv(inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> nn.Sequential:
    return conv_norm_relu(inputs, outputs, kernel, stride=stride, eps=_GOOGLENET_EPS)


class Inception(nn.Module):
    """Four branches side by side: 1x1; 1x1 then 3x3; 1x1 then 3x3; pooling then 1x1."""

    def __init__(
        self, inputs: int, one: int, squeeze_a: int, three_a: int, squeeze_b: int, three_b: int, pooled: int
    ) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            [
                _googlenet_conv(inputs, one),
                nn.Sequential(_googlenet_conv(inputs, squeeze_a), _googlenet_conv(squeeze_a, three_a, 3)),
                nn.Sequential(_googlenet_conv(inputs, squeeze_b), _googlenet_conv(squeeze_b, three_b, 3)),
                nn.Sequential(
                    nn.MaxPool2d(3, stride=1, padding=1, ceil_mode=True), _googlenet_conv(inputs, pooled)
                ),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], dim=1)


class GoogLeNet(nn.Module):
    """Stem, three groups of inception modules, a classifier, two auxiliary ones after modules 4a and 4d."""

    def __init__(self, classes: int, *, auxiliaries: bool) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            _googlenet_conv(3, 64, 7, 2),
            _pool(),
            _googlenet_conv(64, 64),
            _googlenet_conv(64, 192, 3),
            _pool(),
        )
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
        self.auxiliary_4a = _googlenet_auxiliary(512, classes) if auxiliaries else None
        self.auxiliary_4d = _googlenet_auxiliary(528, classes) if auxiliaries else None

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        after_4a = self.to_4a(self.stem(x))
        after_4d = self.to_4d(after_4a)
        outputs = [self.classifier(self.to_5b(after_4d))]
        if self.auxiliary_4a is not None and self.auxiliary_4d is not None:
            outputs += [self.auxiliary_4a(after_4a), self.auxiliary_4d(after_4d)]
        return tuple(outputs)


def _pool() -> nn.Module:
    return nn.MaxPool2d(3, stride=2, ceil_mode=True)


def _googlenet_auxiliary(inputs: int, classes: int) -> nn.Sequential:
    return nn.Sequential(
        nn.AdaptiveAvgPool2d(4),
        _googlenet_conv(inputs, 128),
        nn.Flatten(),
        nn.Linear(2048, 1024),
        nn.ReLU(inplace=True),
        nn.Dropout(0.7),
        nn.Linear(1024, classes),
    )


def googlenet(sizes: Sizes, *, auxiliaries: bool, classes: int = 1000) -> Example:
    """GoogLeNet; the auxiliary classifiers, if any, weigh 0.3 each in the loss, as in the paper."""
    module = GoogLeNet(classes, auxiliaries=auxiliaries)
    return image_classification(module, sizes, classes=classes, auxiliary_weight=_GOOGLENET_AUXILIARY_WEIGHT)


_EPS = 0.001
_AUXILIARY_WEIGHT = 0.4
_ROW, _COLUMN = (1, 7), (7, 1)


def _conv(
    inputs: int, outputs: int, kernel: Kernel = 1, stride: int = 1, padding: int | None = None
) -> nn.Sequential:
    return conv_norm_relu(inputs, outputs, kernel, stride=stride, padding=padding, eps=_EPS)


def _project_pooled(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.AvgPool2d(3, stride=1, padding=1), _conv(inputs, outputs))


class Branches(nn.Module):
    """Branches side by side, their channels concatenated."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], dim=1)


def _module_a(inputs: int, pooled: int) -> Branches:
    """35x35: 1x1, 5x5, double 3x3, pooling."""
    return Branches(
        _conv(inputs, 64),
        nn.Sequential(_conv(inputs, 48), _conv(48, 64, 5)),
        nn.Sequential(_conv(inputs, 64), _conv(64, 96, 3), _conv(96, 96, 3)),
        _project_pooled(inputs, pooled),
    )


def _reduction_a(inputs: int) -> Branches:
    """35x35 to 17x17."""
    return Branches(
        _conv(inputs, 384, 3, 2, 0),
        nn.Sequential(_conv(inputs, 64), _conv(64, 96, 3), _conv(96, 96, 3, 2, 0)),
        nn.MaxPool2d(3, stride=2),
    )


def _module_b(width: int) -> Branches:
    """17x17: 1x1, factorised 7x7, double factorised 7x7, pooling."""
    return Branches(
        _conv(768, 192),
        nn.Sequential(_conv(768, width), _conv(width, width, _ROW), _conv(width, 192, _COLUMN)),
        nn.Sequential(
            _conv(768, width),
            _conv(width, width, _COLUMN),
            _conv(width, width, _ROW),
            _conv(width, width, _COLUMN),
            _conv(width, 192, _ROW),
        ),
        _project_pooled(768, 192),
    )


def _reduction_b() -> Branches:
    """17x17 to 8x8."""
    return Branches(
        nn.Sequential(_conv(768, 192), _conv(192, 320, 3, 2, 0)),
        nn.Sequential(
            _conv(768, 192), _conv(192, 192, _ROW), _conv(192, 192, _COLUMN), _conv(192, 192, 3, 2, 0)
        ),
        nn.MaxPool2d(3, stride=2),
    )


def _module_c(inputs: int) -> Branches:
    """8x8: 1x1, a 3x3 split in row and column, a double 3x3 split likewise, pooling."""
    return Branches(
        _conv(inputs, 320),
        nn.Sequential(_conv(inputs, 384), _row_and_column()),
        nn.Sequential(_conv(inputs, 448), _conv(448, 384, 3), _row_and_column()),
        _project_pooled(inputs, 192),
    )


def _row_and_column() -> Branches:
    return Branches(_conv(384, 384, (1, 3)), _conv(384, 384, (3, 1)))


class InceptionV3(nn.Module):
    """Stem, modules A (35x35), B (17x17) and C (8x8), a classifier, an auxiliary one after the B modules."""

    def __init__(self, classes: int, *, auxiliary: bool) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            _conv(3, 32, 3, 2, 0),
            _conv(32, 32, 3, 1, 0),
            _conv(32, 64, 3),
            nn.MaxPool2d(3, stride=2),
            _conv(64, 80),
            _conv(80, 192, 3, 1, 0),
            nn.MaxPool2d(3, stride=2),
        )
        self.a_and_b = nn.Sequential(
            _module_a(192, 32),
            _module_a(256, 64),
            _module_a(288, 64),
            _reduction_a(288),
            *(_module_b(width) for width in (128, 160, 160, 192)),
        )
        self.c = nn.Sequential(_reduction_b(), _module_c(1280), _module_c(2048))
        self.classifier = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5), nn.Linear(2048, classes)
        )
        self.auxiliary = _auxiliary(classes) if auxiliary else None

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        features = self.a_and_b(self.stem(x))
        outputs = [self.classifier(self.c(features))]
        if self.auxiliary is not None:
            outputs.append(self.auxiliary(features))
        return tuple(outputs)


def _auxiliary(classes: int) -> nn.Sequential:
    return nn.Sequential(
        nn.AvgPool2d(5, stride=3),
        _conv(768, 128),
        _conv(128, 768, 5, 1, 0),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(768, classes),
    )


def inception_v3(sizes: Sizes, *, auxiliary: bool, classes: int = 1000) -> Example:
    """Inception v3; the auxiliary classifier, if there is one, weighs 0.4 in the loss."""
    module = InceptionV3(classes, auxiliary=auxiliary)
    return image_classification(module, sizes, classes=classes, auxiliary_weight=_AUXILIARY_WEIGHT)
