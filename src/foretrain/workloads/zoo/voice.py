"""Two networks that recognise a spoken digit in 1.5 s of sound, sampled at 8 kHz.

From "Multi-GPU Neural Network Training in the Cloud"; the printed layer tables fix every shape, the paddings
included: half a kernel on each side, so that an even kernel adds one sample (12000 to 12001).
"""

from __future__ import annotations

import torch
from torch import nn

from foretrain.workloads.example import Example
from foretrain.workloads.zoo.catalogue import Sizes
from foretrain.workloads.zoo.tasks import cross_entropy

_SAMPLES_PER_CLIP = 12_000
_DIGITS = 10


def voice_linear(sizes: Sizes) -> Example:
    """Four linear layers, 12000 to 1000 to 100 to 10 to 10."""
    module = nn.Sequential(
        nn.Linear(_SAMPLES_PER_CLIP, 1000),
        nn.ReLU(),
        nn.Linear(1000, 100),
        nn.ReLU(),
        nn.Linear(100, 10),
        nn.Sigmoid(),
        nn.Linear(10, _DIGITS),
    )
    return _digit_recognition(module, sizes)


def voice_conv(sizes: Sizes) -> Example:
    """Three convolutions with max pooling, then two linear layers."""
    module = nn.Sequential(
        nn.Conv1d(1, 50, 200, padding=100),
        nn.ReLU(),
        nn.MaxPool1d(4),
        nn.Conv1d(50, 30, 100, padding=50),
        nn.ReLU(),
        nn.MaxPool1d(3),
        nn.Conv1d(30, 10, 50, padding=25),
        nn.ReLU(),
        nn.MaxPool1d(5),
        nn.Flatten(),
        nn.Linear(2000, 100),
        nn.Sigmoid(),
        nn.Linear(100, _DIGITS),
    )
    return _digit_recognition(module, sizes)


def _digit_recognition(module: nn.Module, sizes: Sizes) -> Example:
    clips = torch.rand(sizes.batch, 1, _SAMPLES_PER_CLIP)
    loss = cross_entropy(torch.randint(_DIGITS, (sizes.batch,)))
    return Example(module.train(), (clips,), loss, samples=sizes.batch)
