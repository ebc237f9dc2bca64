"""Train a small CNN on synthetic MNIST-like images, alone or under torchrun (gloo, DDP).

    foretrain measure -- python examples/train_mnist_cnn.py
    foretrain measure -- torchrun --nproc_per_node 2 examples/train_mnist_cnn.py
    foretrain measure --model examples/train_mnist_cnn.py:workload --on here --batch 64 --optimizer sgd \\
        -- python examples/train_mnist_cnn.py

The only lines that foretrain asks for are `import foretrain` and `foretrain.step()`.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import foretrain


def main() -> None:
    """Train for the steps that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=128, help="width of the dense layer")
    options = parser.parse_args()
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world > 1:
        torch.distributed.init_process_group("gloo")
        torch.set_num_threads(1)
    train(options.steps, options.batch, options.hidden, is_distributed=world > 1)
    if world > 1:
        torch.distributed.destroy_process_group()
        # DistributedDataParallel keeps gloo's threads alive. One that frees its last exchange, for which it
        # needs the interpreter, while that shuts down aborts the process (PyTorch 2.13, Python 3.11).
        time.sleep(0.5)


def train(steps: int, batch: int, hidden: int, is_distributed: bool) -> None:
    """The training loop."""
    torch.manual_seed(0)
    model: nn.Module = network(hidden)
    if is_distributed:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(synthetic_digits(4096), batch_size=batch, shuffle=True, drop_last=True)
    done = 0
    while done < steps:
        for images, labels in foretrain.timed_input(loader):
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            foretrain.step()
            done += 1
            if done == steps:
                break
    if os.environ.get("RANK", "0") == "0":
        print(f"trained {done} steps, loss {loss.item():.3f}")


def network(hidden: int) -> nn.Module:
    """Two convolutions and two dense layers."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, hidden), nn.ReLU(), nn.Linear(hidden, 10),
    )  # fmt: skip


def workload() -> tuple[nn.Module, torch.Tensor, Callable[[torch.Tensor], torch.Tensor]]:
    """What `foretrain predict examples/train_mnist_cnn.py:workload` predicts: model, input and loss."""

    def loss(output: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(output, torch.zeros_like(output[:, 0], dtype=torch.long))

    return network(128), torch.zeros(64, 1, 28, 28), loss


def synthetic_digits(count: int) -> TensorDataset:
    """Images of 28 x 28 pixels: a bright bar whose place is the label, under noise."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(10, (count,), generator=generator)
    images = 0.3 * torch.randn(count, 1, 28, 28, generator=generator)
    for place in range(10):
        images[labels == place, :, 4:24, 2 * place + 4 : 2 * place + 6] += 1
    return TensorDataset(images, labels)


if __name__ == "__main__":
    main()
