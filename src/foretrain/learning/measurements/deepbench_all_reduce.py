"""DeepBench's all-reduces of floats between 2, 4 and 8 GPUs of one node over PCI Express 3, NCCL 2.0.

Rows of several nodes are left out: the sheets do not name the network. So are the Maxwell GPUs and the P100,
whose pairs got 6 GB/s, half of what Pascal ones with peer access did: their machine is not described.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from foretrain.learning.measurements._base import rows
from foretrain.learning.measurements.collective_times import CollectiveTime
from foretrain.learning.measurements.deepbench_products import FILE as FILE
from foretrain.prediction.collectives._base import Verb

SOURCE = "deepbench"
_MACHINES = {
    "DeepBench_NV_1080Ti": ("gtx1080ti:8", "pcie-switch"),
    "DeepBench_NV_TitanX_Pascal": ("titanx-pascal:8", "pcie-switch"),
}
_TITLE = "All-Reduce"
_ITEM_BYTES = 4


def read(data: Path) -> tuple[CollectiveTime, ...]:
    """All sizes on machines that are understood."""
    return tuple(_cases(data / FILE))


def _cases(file: Path) -> Iterator[CollectiveTime]:
    inside = False
    for row in rows(file):
        if row["c0"]:
            inside = row["c0"].strip() == _TITLE
        elif inside and row["file"] in _MACHINES and row["c2"].isdigit() and not row["c4"].strip():
            size, milliseconds = _ITEM_BYTES * float(row["c2"]), float(row["c6"])
            yield CollectiveTime(
                SOURCE, *_MACHINES[row["file"]], Verb.ALL_REDUCE, int(row["c3"]), size, milliseconds * 1e-3
            )
