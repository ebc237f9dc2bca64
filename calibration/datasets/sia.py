"""Sia's step times: six models over placements and batch sizes on three clusters.

AWS nodes have four T4 (this part is AdaptDL's), RTX nodes eight RTX 2080 Ti, Azure nodes eight V100. In the
table `placements` each digit is the devices on a node; the table `scalability` has nodes and devices only.
On AWS, two nodes are slower than three or four. Azure is noisy: eight workers on a node slow each other down
by up to three times.

`read_waiting` reads gradient synchronisation inside one node: 2 to 8 RTX 2080 Ti and 2 to 4 T4, each under
one host bridge. The time is what a step waited, so it excludes what overlapped with the backward pass: the
smallest batch of each model is read, where the overlap is smallest. Models whose gradients take less than
`_LONG` seconds are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from calibration.datasets.measurements import rows

FILE = Path("sia/step_and_sync_time.csv.gz")
SOURCE = "sia"
CLUSTERS: Mapping[str, str] = {"aws": "aws-4xt4", "rtx": "8xrtx2080ti", "azure": "azure-8xv100"}
"""By Sia's names."""
MODELS: Mapping[str, str] = {"cifar10": "resnet18", "imagenet": "resnet50"}
"""Networks that Sia names by their data."""
PLACEMENTS, SCALABILITY = "placements", "scalability"
_LONG = 15e-3
_WAITING_CLUSTERS = ("aws", "rtx")


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


@dataclass(frozen=True, slots=True)
class Waiting:
    """Seconds that a model's gradients took on a number of devices of one node."""

    cluster: str
    model: str
    devices: int
    seconds: float


def read_waiting(data: Path) -> tuple[Waiting, ...]:
    """One row for each cluster, model and number of devices of one node, where pairs already take long."""
    smallest: dict[tuple[str, str, int], tuple[float, float]] = {}
    for row in rows(data / FILE):
        alone = len(row["placement"]) == 1 and row["placement"] != "1"
        if row["cluster"] in _WAITING_CLUSTERS and row["table"] == "placements" and alone:
            key = (row["cluster"], row["model"], int(row["placement"]))
            wait = (float(row["local_bsz"]), float(row["sync_time"]))
            smallest[key] = min(smallest.get(key, wait), wait)
    return tuple(
        Waiting(*key, seconds)
        for key, (_, seconds) in sorted(smallest.items())
        if smallest.get((*key[:2], 2), (0.0, 0.0))[1] >= _LONG
    )
