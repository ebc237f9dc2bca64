"""The example batch and loss of an image model from a library: one class per image, or per pixel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretrain.workloads.example import Example


def classification(module: nn.Module, images: tuple[int, int, int, int], classes: int) -> Example:
    """Images of shape (batch, channels, height, width), one class each."""
    return _example(module, images, (images[0],), classes)


def segmentation(module: nn.Module, images: tuple[int, int, int, int], classes: int) -> Example:
    """Images of shape (batch, channels, height, width), one class for each pixel."""
    batch, _, height, width = images
    return _example(module, images, (batch, height, width), classes)


def _example(module: nn.Module, images: tuple[int, ...], targets: tuple[int, ...], classes: int) -> Example:
    with torch.device("meta"):
        inputs, wanted = torch.rand(images), torch.randint(classes, targets)

    def loss(output: Any) -> Tensor:
        """Cross-entropy summed over the outputs: the last layer's, and those of auxiliary classifiers.

        Recipes weigh the auxiliary ones less, which changes nothing about the cost of a step.
        """
        first, *others = (functional.cross_entropy(logits, wanted) for logits in _tensors(output))
        return sum(others, start=first)

    return Example(module, (inputs,), loss, samples=images[0])


def _tensors(output: Any) -> Iterator[Tensor]:
    if isinstance(output, Tensor):
        yield output
    elif output is not None:
        for item in output.values() if isinstance(output, dict) else output:
            yield from _tensors(item)
