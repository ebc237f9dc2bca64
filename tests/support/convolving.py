"""A model that computes much and has few parameters, or many and computes little, as a file of a user."""

from __future__ import annotations

from pathlib import Path

from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.workload import Workload, workload_of

_FILE = """
import torch
from torch import nn


def convolving():
    net = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )
    return net, (torch.zeros(4, 3, 64, 64),)


def multiplying():
    net = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(6)))
    return net, (torch.zeros(4, 2048),)


def normalising():
    net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    return net, (torch.zeros(4, 8),)
"""


def model_file(folder: Path) -> Path:
    """The file with both models, `convolving` and `multiplying`, and one with batch norm, `normalising`."""
    file = folder / "models.py"
    file.write_text(_FILE)
    return file


def workload_named(folder: Path, name: str) -> Workload:
    """The workload of one of them."""
    return workload_of(WorkloadRequest(model=f"{model_file(folder)}:{name}", precision="fp32"))
