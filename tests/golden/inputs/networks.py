"""Small models for golden requests."""

from __future__ import annotations

import torch
from torch import nn


class Generator(nn.Module):
    """A DCGAN generator: latent vector to a 32 x 32 image."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.ConvTranspose2d(100, 4 * width, 4, bias=False), nn.BatchNorm2d(4 * width), nn.ReLU(),
            nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1, bias=False),
            nn.BatchNorm2d(2 * width), nn.ReLU(),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh(),
        )  # fmt: skip

    def forward(self, noise: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(noise)
        return out


class Discriminator(nn.Module):
    """A DCGAN discriminator on 32 x 32 images."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, 4, 2, 1), nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.2),
            nn.Conv2d(2 * width, 4 * width, 4, 2, 1), nn.BatchNorm2d(4 * width), nn.LeakyReLU(0.2),
            nn.Conv2d(4 * width, 1, 4),
        )  # fmt: skip

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(images)
        return out.flatten()


class Adversarial(nn.Module):
    """Generator and discriminator in one step."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = Generator()
        self.discriminator = Discriminator()

    def forward(self, noise: torch.Tensor, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.discriminator(self.generator(noise)), self.discriminator(images)


class Recurrent(nn.Module):
    """A two-layer LSTM with a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(80, 256, num_layers=2, batch_first=True)
        self.head = nn.Linear(256, 40)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(frames)
        out: torch.Tensor = self.head(states)
        return out


class Graded(nn.Module):
    """GRU over embedded tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5000, 128)
        self.gru = nn.GRU(128, 256, batch_first=True)
        self.head = nn.Linear(256, 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        states, _ = self.gru(self.embedding(tokens))
        out: torch.Tensor = self.head(states[:, -1])
        return out


def gan(batch: int = 16) -> tuple[nn.Module, tuple[torch.Tensor, ...], object]:
    """A GAN step on a batch of images."""
    inputs = (torch.randn(batch, 100, 1, 1), torch.randn(batch, 3, 32, 32))
    return Adversarial(), inputs, lambda out: out[0].mean() - out[1].mean()


def lstm(batch: int = 16, seq_len: int = 50) -> tuple[nn.Module, torch.Tensor]:
    """A speech model; its loss is foretrain's default."""
    return Recurrent(), torch.randn(batch, seq_len, 80)


def gru(batch: int = 16, seq_len: int = 32) -> tuple[nn.Module, torch.Tensor]:
    """A text classifier."""
    return Graded(), torch.randint(0, 5000, (batch, seq_len))
