"""The shallow network a shopping guide for distributed training measured on MNIST.

Two convolutions, each with a max pooling, 800 features, a hidden layer of 500 and ten classes; the guide
gives the 800 features, which 20 and 50 unpadded 5x5 filters on 28x28 images yield (50·4·4). The guide's other
network, ResNet-18 with one input channel and a 3x3 first kernel, is built by `resnet`.
"""

from __future__ import annotations

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
