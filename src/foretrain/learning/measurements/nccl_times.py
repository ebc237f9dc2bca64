"""aiconfigurator's NCCL tables: four verbs on 2, 4 and 8 devices of A100, H200, B200 and L40S machines.

`message_size` counts elements of the whole message (all-gather: of the result), not bytes: only so the same
message takes as long in half precision as in whole numbers of one byte. Repeats of one version of NCCL are
reduced to their median, and the versions to the median of theirs, so that each has one vote: 2.29.2 on the
B200 needs up to twice as long as 2.27.5 and 2.28.9 for 8 to 32 MiB. The switch sums half precision only; what
is told here by default are those rows, for training sums no whole numbers.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

from foretrain.learning.measurements._base import rows
from foretrain.learning.measurements.collective_times import CollectiveTime
from foretrain.prediction.collectives._base import Verb

FILE = Path("aiconfigurator/nccl.csv.gz")
SOURCE = "aiconfigurator"
_MACHINES = {
    "a100_sxm": ("a100-sxm-80gb:8", "nvswitch"),
    "h200_sxm": ("h200-sxm:8", "nvswitch"),
    "b200_sxm": ("b200:8", "nvswitch"),
    "l40s": ("l40s:8", "host-bridge"),
}
_VERBS = {
    "all_reduce": Verb.ALL_REDUCE,
    "all_gather": Verb.ALL_GATHER,
    "reduce_scatter": Verb.REDUCE_SCATTER,
    "alltoall": Verb.ALL_TO_ALL,
}
_ITEM_BYTES = {"half": 2, "int8": 1}


def read(data: Path, dtype: str = "half") -> tuple[CollectiveTime, ...]:
    """The median time of each verb, machine, number of devices and size."""
    seconds: dict[tuple[str, str, int, int], dict[str, list[float]]] = {}
    for row in rows(data / FILE):
        if row["nccl_dtype"] == dtype:
            size = int(float(row["message_size"])) * _ITEM_BYTES[dtype]
            key = (row["system"], row["op_name"], int(float(row["num_gpus"])), size)
            seconds.setdefault(key, {}).setdefault(row["nccl"], []).append(float(row["latency_ms"]) * 1e-3)
    return tuple(
        CollectiveTime(
            SOURCE,
            *_MACHINES[system],
            _VERBS[verb],
            devices,
            size,
            median(median(repeats) for repeats in versions.values()),
            sums=dtype == "half",
        )
        for (system, verb, devices, size), versions in sorted(seconds.items())
    )
