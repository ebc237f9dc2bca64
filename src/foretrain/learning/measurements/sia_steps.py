"""Sia's step times: six models over placements and batch sizes on three clusters.

AWS nodes have four T4 (this part is AdaptDL's), RTX nodes eight RTX 2080 Ti, Azure nodes eight V100. In the
table `placements` each digit is the devices on a node; the table `scalability` gives nodes and devices only.
On AWS two nodes are slower than three or four. Azure is noisy, and eight workers on a node slow each other
down by up to three times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from foretrain.learning.measurements._base import rows

FILE = Path("sia/step_and_sync_time.csv.gz")
SOURCE = "sia"
CLUSTERS: Mapping[str, str] = {"aws": "aws-4xt4", "rtx": "8xrtx2080ti", "azure": "azure-8xv100"}
"""By Sia's names."""
MODELS: Mapping[str, str] = {"cifar10": "resnet18", "imagenet": "resnet50"}
"""Networks that Sia names by their data."""
PLACEMENTS, SCALABILITY = "placements", "scalability"


@dataclass(frozen=True, slots=True)
class SiaStep:
    """One row: what ran where. Of the table `scalability`, how devices were spread is not known."""

    model: str
    cluster: str
    table: str
    nodes: int
    devices: int
    devices_per_node: tuple[int, ...] | None
    batch: int
    step_seconds: float
    sync_seconds: float = 0.0


def read(data: Path) -> list[SiaStep]:
    """All rows of the file, in its order."""
    return [_step(row) for row in rows(data / FILE)]


def _step(row: Mapping[str, str]) -> SiaStep:
    on_each = tuple(int(digit) for digit in row["placement"]) or None
    return SiaStep(
        MODELS.get(row["model"], row["model"]),
        CLUSTERS[row["cluster"]],
        row["table"],
        len(on_each) if on_each else int(float(row["num_nodes"])),
        sum(on_each) if on_each else int(float(row["num_replicas"])),
        on_each,
        int(row["local_bsz"]),
        float(row["step_time"]),
        float(row["sync_time"]),
    )
