"""The networks PROFET timed, as its Keras definitions say, in PyTorch.

Keras pads "same" on one side more than on the other where a stride asks for it; here both sides get as much,
which leaves all sizes the same. Reference: S. Lee et al., "PROFET: Profiling-based CNN training latency
prophet for GPU cloud instances", arXiv:2208.05130; `model_info.py` of its repository (e69477fe).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from foretrain.workloads.example import Example
from foretrain.workloads.zoo.catalogue import Sizes
from foretrain.workloads.zoo.inception import inception_v3
from foretrain.workloads.zoo.residual import mobilenet_v2
from foretrain.workloads.zoo.tasks import image_classification

_VGG_WIDTHS = (64, 128, 256, 512, 512)
_RESNET_WIDTHS = (64, 128, 256, 512)


class _PreActivation(nn.Module):
    """A residual block of batch norm, ReLU and convolution, in that order (arXiv:1603.05027).

    The network's first block starts from an activated input and goes without its first norm and ReLU.
    """

    def __init__(
        self, inputs: int, kernels: tuple[tuple[int, int], ...], stride: int, is_first: bool
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = inputs
        for index, (kernel, outputs) in enumerate(kernels):
            if index or not is_first:
                layers += [nn.BatchNorm2d(channels), nn.ReLU()]
            layers.append(nn.Conv2d(channels, outputs, kernel, 1 if index else stride, padding=kernel // 2))
            channels = outputs
        self.body = nn.Sequential(*layers)
        changes = stride > 1 or channels != inputs
        self.shortcut = nn.Conv2d(inputs, channels, 1, stride) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        shortcut: Tensor = self.shortcut(x)
        residual: Tensor = self.body(x)
        return shortcut + residual


class _PointwiseBlock(nn.Module):
    """ResNetSmall's block: two 1x1 convolutions with batch norm, added to the input."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 1), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        strided = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))
        self.shortcut = strided if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        shortcut: Tensor = self.shortcut(x)
        activated: Tensor = nn.functional.relu(shortcut + self.body(x))
        return activated


def _classified(module: nn.Module, sizes: Sizes, classes: int) -> Example:
    return image_classification(module, sizes, classes=classes)


def _lenet5(sizes: Sizes, classes: int) -> Example:
    side = ((sizes.image_size - 4) // 2 - 4) // 2
    module = nn.Sequential(
        nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(16 * side**2, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, classes),
    )  # fmt: skip
    return _classified(module, sizes, classes)


def _mnist_cnn(sizes: Sizes, classes: int) -> Example:
    side = ((sizes.image_size - 2) // 2 - 2) // 2
    module = nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Dropout(0.5), nn.Linear(64 * side**2, classes),
    )  # fmt: skip
    return _classified(module, sizes, classes)


def _cifar10_cnn(sizes: Sizes, classes: int) -> Example:
    side = ((sizes.image_size - 2) // 2 - 2) // 2
    module = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Dropout(0.25), nn.Flatten(),
        nn.Linear(64 * side**2, 512), nn.ReLU(), nn.Dropout(0.5), nn.Linear(512, classes),
    )  # fmt: skip
    return _classified(module, sizes, classes)


def _alexnet(sizes: Sizes, classes: int) -> Example:
    """What PROFET calls AlexNet: an 11x11 convolution of stride 1, and up to 1024 channels."""
    layers: list[nn.Module] = []
    channels, side = 3, sizes.image_size
    for width, kernel, margin, pools in (
        (96, 11, 0, True), (256, 5, 0, True), (512, 3, 1, True), (1024, 3, 1, False), (1024, 3, 1, True)
    ):  # fmt: skip
        layers += [nn.ZeroPad2d(margin)] if margin else []
        layers += [nn.Conv2d(channels, width, kernel, padding=kernel // 2), nn.BatchNorm2d(width), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if pools else []
        channels, side = width, (side + 2 * margin) // (2 if pools else 1)
    layers.append(nn.Flatten())
    features = channels * side**2
    for width in (3072, 4096):
        layers += [nn.Linear(features, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.5)]
        features = width
    layers += [nn.Linear(features, classes), nn.BatchNorm1d(classes)]
    return _classified(nn.Sequential(*layers), sizes, classes)


def _vgg(sizes: Sizes, classes: int, convolutions: tuple[int, ...]) -> Example:
    layers: list[nn.Module] = []
    channels = 3
    for width, count in zip(_VGG_WIDTHS, convolutions, strict=True):
        for _ in range(count):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
            channels = width
        layers.append(nn.MaxPool2d(2))
    features = channels * (sizes.image_size // 2 ** len(convolutions)) ** 2
    module = nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(features, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(),
        nn.Linear(4096, classes),
    )  # fmt: skip
    return _classified(module, sizes, classes)


def _resnet(sizes: Sizes, classes: int, blocks: tuple[int, ...], bottleneck: bool = False) -> Example:
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, padding=3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1),
    ]  # fmt: skip
    channels = 64
    for stage, (width, count) in enumerate(zip(_RESNET_WIDTHS, blocks, strict=True)):
        kernels = ((1, width), (3, width), (1, 4 * width)) if bottleneck else ((3, width), (3, width))
        for index in range(count):
            stride = 2 if stage and not index else 1
            layers.append(_PreActivation(channels, kernels, stride, is_first=not stage and not index))
            channels = kernels[-1][1]
    layers += [nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    module = nn.Sequential(*layers, nn.Linear(channels, classes))
    return _classified(module, sizes, classes)


def _resnet_small(sizes: Sizes, classes: int) -> Example:
    module = nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, padding=3), nn.ReLU(), nn.BatchNorm2d(64), nn.MaxPool2d(3, 2, padding=1),
        _PointwiseBlock(64, 64, 2), _PointwiseBlock(64, 64, 1),
        _PointwiseBlock(64, 128, 2), _PointwiseBlock(128, 128, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, classes),
    )  # fmt: skip
    return _classified(module, sizes, classes)


def _inception_resnet_v2(sizes: Sizes, classes: int) -> Example:
    from foretrain.workloads.readers._torchvision import repair_torchvision

    repair_torchvision()
    import timm

    return _classified(timm.create_model("inception_resnet_v2", num_classes=classes), sizes, classes)


def _with(builder: Callable[..., Example], **arguments: Any) -> Callable[[Sizes, int], Example]:
    return lambda sizes, classes: builder(sizes, classes=classes, **arguments)


BUILDERS: Mapping[str, Callable[[Sizes, int], Example]] = {
    "AlexNet": _alexnet,
    "CIFAR10_CNN": _cifar10_cnn,
    "InceptionResNetV2": _inception_resnet_v2,
    "InceptionV3": _with(inception_v3, auxiliary=False),
    "LeNet5": _lenet5,
    "MNIST_CNN": _mnist_cnn,
    "MobileNetV2": _with(mobilenet_v2, dropout=0.0),
    "ResNet18": _with(_resnet, blocks=(2, 2, 2, 2)),
    "ResNet34": _with(_resnet, blocks=(3, 4, 6, 3)),
    "ResNet50": _with(_resnet, blocks=(3, 4, 6, 3), bottleneck=True),
    "ResNetSmall": _resnet_small,
    "VGG11": _with(_vgg, convolutions=(1, 1, 2, 2, 2)),
    "VGG13": _with(_vgg, convolutions=(2, 2, 2, 2, 2)),
    "VGG16": _with(_vgg, convolutions=(2, 2, 3, 3, 3)),
    "VGG19": _with(_vgg, convolutions=(2, 2, 4, 4, 4)),
}
"""By PROFET's name for them: from sizes and classes to a network with an example batch."""
