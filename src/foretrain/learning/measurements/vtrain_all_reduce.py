"""vTrain's NCCL all-reduces over NVLink: 2 to 8 A100 on a switch, 2 to 8 V100 in the mesh of a DGX-1."""

from __future__ import annotations

from pathlib import Path

from foretrain.learning.measurements._base import rows
from foretrain.learning.measurements.collective_times import CollectiveTime
from foretrain.prediction.collectives._base import Verb

FILE = Path("vtrain/nvlink_allreduce.csv.gz")
SOURCE = "vtrain"
_MACHINES = {"a100": ("a100-sxm-80gb:8", "nvswitch"), "v100": ("dgx-1v", "nvlink-mesh")}


def read(data: Path) -> tuple[CollectiveTime, ...]:
    """All sizes, 1 MiB to 1 GiB in steps of 1 MiB."""
    return tuple(
        CollectiveTime(
            SOURCE,
            *_MACHINES[row["device"]],
            Verb.ALL_REDUCE,
            int(row["gpus"]),
            float(row["bytes"]),
            float(row["time_us"]) * 1e-6,
        )
        for row in rows(data / FILE)
    )
