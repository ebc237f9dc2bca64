"""Sia's gradient synchronisation inside one node: 2 to 8 RTX 2080 Ti, 2 to 4 T4, each under one host bridge.

The time is that which a step waited, so it hides what overlapped with backward: the smallest batch of each
model is read, where least is hidden. Models whose gradients take less than `_LONG` are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foretrain.learning.measurements._base import rows

FILE = Path("sia/step_and_sync_time.csv.gz")
_LONG = 15e-3
_CLUSTERS = ("aws", "rtx")


@dataclass(frozen=True, slots=True)
class Waiting:
    """Seconds that a model's gradients took on so many devices of one node."""

    cluster: str
    model: str
    devices: int
    seconds: float


def read(data: Path) -> tuple[Waiting, ...]:
    """One row for each cluster, model and number of devices of one node, where pairs already take long."""
    smallest: dict[tuple[str, str, int], tuple[float, float]] = {}
    for row in rows(data / FILE):
        alone = len(row["placement"]) == 1 and row["placement"] != "1"
        if row["cluster"] in _CLUSTERS and row["table"] == "placements" and alone:
            key = (row["cluster"], row["model"], int(row["placement"]))
            found = (float(row["local_bsz"]), float(row["sync_time"]))
            smallest[key] = min(smallest.get(key, found), found)
    return tuple(
        Waiting(*key, seconds)
        for key, (_, seconds) in sorted(smallest.items())
        if smallest.get((*key[:2], 2), (0.0, 0.0))[1] >= _LONG
    )
