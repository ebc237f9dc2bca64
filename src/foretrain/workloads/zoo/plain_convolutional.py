"""Plain stacks of convolutions and linear layers: the MNIST example, AlexNet, VGG.

The shallow network a shopping guide for distributed training measured on MNIST.

Two convolutions, each with a max pooling, 800 features, a hidden layer of 500 and ten classes; the guide
gives the 800 features, which 20 and 50 unpadded 5x5 filters on 28x28 images yield (50·4·4). The guide's other
network, ResNet-18 with one input channel and a 3x3 first kernel, is built by `resnet`.

AlexNet, the one-column variant. Krizhevsky, "One weird trick for parallelizing CNNs", arXiv:1404.5997.

VGG without batch norm. Simonyan and Zisserman, arXiv:1409.1556, configurations A, D and E.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from foretrain.workloads.example import Example
from foretrain.workloads.zoo.catalogue import Sizes
from foretrain.workloads.zoo.tasks import image_classification


def mnist_cnn(sizes: Sizes) -> Example:
    """The shallow MNIST network with an example batch."""
    module = nn.Sequential(
        nn.Conv2d(1, 20, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(800, 500),
        nn.ReLU(),
        nn.Linear(500, 10),
    )
    return image_classification(module, sizes, classes=10, channels=1)


def alexnet(sizes: Sizes, *, classes: int = 1000, dropout: float = 0.5) -> Example:
    """AlexNet with an example batch."""
    module = nn.Sequential(
        nn.Conv2d(3, 64, 11, stride=4, padding=2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2),
        nn.Conv2d(64, 192, 5, padding=2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2),
        nn.Conv2d(192, 384, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(384, 256, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(256, 256, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2),
        nn.AdaptiveAvgPool2d(6),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(256 * 6 * 6, 4096),
        nn.ReLU(inplace=True),
        nn.Dropout(dropout),
        nn.Linear(4096, 4096),
        nn.ReLU(inplace=True),
        nn.Linear(4096, classes),
    )
    return image_classification(module, sizes, classes=classes)


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
