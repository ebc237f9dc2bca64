"""A value for every place of an image: U-Net segments, YOLOv3 detects.

U-Net. Ronneberger et al., arXiv:1505.04597, with padded convolutions and batch norm.

Padding keeps the size, so the mask is as large as the image and nothing is cropped.

YOLOv3 on Darknet-53. Redmon and Farhadi, arXiv:1804.02767.

The loss is the paper's sum of squared and logistic errors against dense targets: assigning boxes to anchors
belongs to the input pipeline and depends on the data, so the targets come as finished maps.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretrain.workloads.example import Example
from foretrain.workloads.zoo.catalogue import Sizes
from foretrain.workloads.zoo.layers import conv_norm, conv_norm_relu


def _double(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(conv_norm_relu(inputs, outputs, 3), conv_norm_relu(outputs, outputs, 3))


class UNet(nn.Module):
    """An encoder that halves and a decoder that doubles the size, joined at each level by concatenation."""

    def __init__(self, channels: int, widths: Sequence[int], classes: int) -> None:
        super().__init__()
        pairs = list(pairwise(widths))
        self.first = _double(channels, widths[0])
        self.down = nn.ModuleList(
            nn.Sequential(nn.MaxPool2d(2), _double(upper, lower)) for upper, lower in pairs
        )
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(lower, upper, 2, stride=2) for upper, lower in reversed(pairs)
        )
        self.join = nn.ModuleList(_double(2 * upper, upper) for upper, _ in reversed(pairs))
        self.last = nn.Conv2d(widths[0], classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        levels = [self.first(x)]
        for down in self.down:
            levels.append(down(levels[-1]))
        x = levels.pop()
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat((levels.pop(), up(x)), dim=1))
        mask: Tensor = self.last(x)
        return mask


def unet(sizes: Sizes, *, widths: Sequence[int], channels: int, classes: int) -> Example:
    """A 2D U-Net with an image and a class for each of its pixels."""
    images = torch.rand(sizes.batch, channels, sizes.image_size, sizes.image_size)
    targets = torch.randint(classes, (sizes.batch, sizes.image_size, sizes.image_size))

    def loss(logits: Tensor) -> Tensor:
        return functional.cross_entropy(logits, targets)

    return Example(UNet(channels, widths, classes).train(), (images,), loss, samples=sizes.batch)


_ANCHORS = 3
_STRIDES = (32, 16, 8)
_BOX = 4
_DARKNET_STAGES = ((64, 1), (128, 2), (256, 8), (512, 8), (1024, 4))
_LEAK = 0.1


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    leaky = nn.LeakyReLU(_LEAK, inplace=True)
    return conv_norm(inputs, outputs, kernel, stride=stride, activation=leaky)


class DarknetBlock(nn.Module):
    """x + (1x1 to half the channels, 3x3 back)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(_conv(channels, channels // 2, 1), _conv(channels // 2, channels, 3))

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = x + self.body(x)
        return output


class Detector(nn.Module):
    """One scale of the head: five convolutions, from which both the prediction and the next scale branch."""

    def __init__(self, inputs: int, width: int, outputs: int) -> None:
        super().__init__()
        self.neck = nn.Sequential(
            _conv(inputs, width, 1),
            _conv(width, 2 * width, 3),
            _conv(2 * width, width, 1),
            _conv(width, 2 * width, 3),
            _conv(2 * width, width, 1),
        )
        self.predict = nn.Sequential(_conv(width, 2 * width, 3), nn.Conv2d(2 * width, outputs, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        neck = self.neck(x)
        return neck, self.predict(neck)


class YoloV3(nn.Module):
    """Darknet-53 without its classifier, and detectors at strides 32, 16 and 8."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        outputs = _ANCHORS * (_BOX + 1 + classes)
        self.stem = _conv(3, 32, 3)
        self.stages = nn.ModuleList(
            nn.Sequential(_conv(width // 2, width, 3, 2), *(DarknetBlock(width) for _ in range(blocks)))
            for width, blocks in _DARKNET_STAGES
        )
        self.detectors = nn.ModuleList(
            [Detector(1024, 512, outputs), Detector(768, 256, outputs), Detector(384, 128, outputs)]
        )
        self.upsample = nn.ModuleList(
            nn.Sequential(_conv(width, width // 2, 1), nn.Upsample(scale_factor=2)) for width in (512, 256)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x = self.stem(x)
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        neck, prediction = self.detectors[0](features.pop())
        predictions = [prediction]
        for upsample, detector in zip(self.upsample, self.detectors[1:], strict=True):
            neck, prediction = detector(torch.cat((upsample(neck), features.pop()), dim=1))
            predictions.append(prediction)
        return tuple(predictions)


def yolov3(sizes: Sizes, *, classes: int = 80) -> Example:
    """YOLOv3 with images and, for each scale, a dense map of box, objectness and class targets."""
    channels = _BOX + 1 + classes
    targets = [
        torch.rand(sizes.batch, _ANCHORS, channels, sizes.image_size // stride, sizes.image_size // stride)
        for stride in _STRIDES
    ]

    def loss(predictions: tuple[Tensor, ...]) -> Tensor:
        total = predictions[0].new_zeros(())
        for prediction, target in zip(predictions, targets, strict=True):
            maps = prediction.view_as(target)
            total = total + functional.mse_loss(maps[:, :, :_BOX], target[:, :, :_BOX])
            total = total + functional.binary_cross_entropy_with_logits(
                maps[:, :, _BOX:], target[:, :, _BOX:]
            )
        return total

    images = torch.rand(sizes.batch, 3, sizes.image_size, sizes.image_size)
    return Example(YoloV3(classes).train(), (images,), loss, samples=sizes.batch)
