"""Gavel's throughputs: four kinds of networks on one to eight K80, P100 or V100, on one machine or apart.

Steps a second are summed over the workers, so that a step takes workers / throughput. "Unconsolidated" runs
have each worker on a machine of its own. Google's machines of that time held up to eight K80 or V100, but
four P100 at most: eight P100 "consolidated" are two machines of four. V100 runs are noisy: language models
take three times as long on four GPUs as on two or on eight.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from calibration.datasets.measurements import rows

FILE = Path("gavel/standalone_throughputs.csv")
SOURCE = "gavel"
MODELS = {"ResNet-18": "resnet18", "ResNet-50": "resnet50", "LM": "lm", "Transformer": "transformer"}
"""Those that ran on several GPUs."""
_MOST_ON_A_MACHINE = {"p100": 4}
_APART = "_unconsolidated"
_WORKLOAD = re.compile(r"(?P<model>.+) \(batch size (?P<batch>\d+)\)")


@dataclass(frozen=True, slots=True)
class GavelStep:
    """One row: a network on some GPUs, on as few machines as hold them (`together`) or one machine each."""

    model: str
    device: str
    together: bool
    nodes: int
    devices: int
    batch: int
    step_seconds: float

    @property
    def cluster(self) -> str:
        """Gavel's machines with this device."""
        return f"gavel-{self.device}"


def read(data: Path) -> list[GavelStep]:
    """Rows of networks that ran on several GPUs; runs that failed have no throughput and are left out."""
    steps = []
    for row in rows(data / FILE):
        workload = _WORKLOAD.fullmatch(row["workload"])
        throughput, workers = float(row["steps_per_second_summed_over_workers"]), int(row["gpus"])
        if workload is None or workload["model"] not in MODELS or throughput <= 0:
            continue
        device = row["device"].removesuffix(_APART)
        together = device == row["device"]
        most = _MOST_ON_A_MACHINE.get(device, workers) if together else 1
        nodes = -(-workers // most)
        seconds = workers / throughput
        model, batch = MODELS[workload["model"]], int(workload["batch"])
        steps.append(GavelStep(model, device, together, nodes, workers, batch, seconds))
    return steps
