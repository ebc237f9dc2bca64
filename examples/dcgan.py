"""A DCGAN as a step function: two networks, two optimizers, one training step.

    foretrain predict examples/dcgan.py:dcgan --on rtx3090 --batch 128

The callable returns the function that runs the step, and its inputs. The networks and optimizers are those
that the function refers to. Radford, Metz and Chintala 2016, arXiv:1511.06434; widths as in PyTorch's
example.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

NOISE, WIDTH, CHANNELS = 100, 64, 3


def generator() -> nn.Module:
    """Noise to images of 64 x 64 pixels."""
    layers: list[nn.Module] = []
    sizes = [NOISE, 8 * WIDTH, 4 * WIDTH, 2 * WIDTH, WIDTH]
    for index, (before, after) in enumerate(pairwise(sizes)):
        stride, padding = (1, 0) if index == 0 else (2, 1)
        layers += [
            nn.ConvTranspose2d(before, after, 4, stride, padding, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
        ]
    return nn.Sequential(*layers, nn.ConvTranspose2d(WIDTH, CHANNELS, 4, 2, 1, bias=False), nn.Tanh())


def discriminator() -> nn.Module:
    """Images to one number each: real or not."""
    layers: list[nn.Module] = [
        nn.Conv2d(CHANNELS, WIDTH, 4, 2, 1, bias=False),
        nn.LeakyReLU(0.2, inplace=True),
    ]
    sizes = [WIDTH, 2 * WIDTH, 4 * WIDTH, 8 * WIDTH]
    for before, after in pairwise(sizes):
        layers += [
            nn.Conv2d(before, after, 4, 2, 1, bias=False),
            nn.BatchNorm2d(after),
            nn.LeakyReLU(0.2, inplace=True),
        ]
    return nn.Sequential(*layers, nn.Conv2d(8 * WIDTH, 1, 4, 1, 0, bias=False), nn.Flatten(0))


def dcgan(batch: int = 128) -> tuple[Callable[[Tensor], None], Tensor]:
    """The step function and a batch of images."""
    making, judging = generator(), discriminator()
    update_making = torch.optim.Adam(making.parameters(), lr=2e-4, betas=(0.5, 0.999))
    update_judging = torch.optim.Adam(judging.parameters(), lr=2e-4, betas=(0.5, 0.999))

    def step(images: Tensor) -> None:
        ones, zeros = torch.ones(len(images)), torch.zeros(len(images))
        update_judging.zero_grad()
        fakes = making(torch.randn(len(images), NOISE, 1, 1))
        functional.binary_cross_entropy_with_logits(judging(images), ones).backward()
        functional.binary_cross_entropy_with_logits(judging(fakes.detach()), zeros).backward()
        update_judging.step()
        update_making.zero_grad()
        functional.binary_cross_entropy_with_logits(judging(fakes), ones).backward()
        update_making.step()

    return step, torch.rand(batch, CHANNELS, 64, 64)
