"""Small models whose every operator can be counted by hand."""

from __future__ import annotations

import torch
from torch import nn

from foretrain.workloads.example import Example
from foretrain.workloads.graph import Graph
from foretrain.workloads.options import ResolvedOptions
from foretrain.workloads.tracing.step import trace


class Mlp(nn.Module):
    """Two linear layers: 8 -> 16 -> 4."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.second = nn.Linear(16, 4)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.first(inputs))
        out: torch.Tensor = self.second(hidden)
        return out


class ConvNet(nn.Module):
    """Convolution, batch norm, pooling, linear."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(8 * 4 * 4, 5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.pool(torch.relu(self.norm(self.conv(images))))
        out: torch.Tensor = self.head(features.flatten(1))
        return out


class Blocks(nn.Module):
    """A stack of equal transformer blocks with dropout and fused attention."""

    def __init__(self, blocks: int = 3) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(16, 2, 32, batch_first=True) for _ in range(blocks)
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            tokens = block(tokens)
        return tokens


class Recurrent(nn.Module):
    """A two-layer LSTM and a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 10, num_layers=2, batch_first=True)
        self.head = nn.Linear(10, 3)

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(sequence)
        out: torch.Tensor = self.head(states)
        return out


MODELS = {
    "mlp": (Mlp, (8,)),
    "conv": (ConvNet, (3, 8, 8)),
    "blocks": (Blocks, (5, 16)),
    "lstm": (Recurrent, (7, 6)),
}


def example(name: str, batch: int = 4) -> Example:
    """A small model with inputs of a batch size; its loss is the sum of squares."""
    build, shape = MODELS[name]
    torch.manual_seed(0)
    return Example(build(), (torch.randn(batch, *shape),), lambda out: out.square().mean(), batch)


def graph(name: str, batch: int = 4, device: str = "meta", **options: object) -> Graph:
    """The traced step of a small model."""
    return trace(example(name, batch), ResolvedOptions(**options), device)  # type: ignore[arg-type]
