"""torchvision models at batch 12, one GPU, FP32 by name: steps short enough for the host to matter.

Forward pass alone, or forward and backward without optimizer; the batch is copied from pageable memory inside
the timed region, and the loop waits for every step. GPUs from Ampere on ran TF32, PyTorch's default then.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from calibration.datasets.measurements import rows
from foretrain.facts.devices import device

FILE = Path("ryujaehun/torchvision_steps.csv")
BATCH = 12
_RUN = re.compile(r"(?P<gpu>.+)_(?P<devices>\d)_gpus__float_model_(?P<mode>inference|train)(ing)?_benchmark")


@dataclass(frozen=True, slots=True)
class SmallStep:
    """One measured step. `host` names the machine it ran on; on several devices it is DataParallel's."""

    model: str
    device_id: str
    host: str
    forward_only: bool
    precision: str
    seconds: float
    devices: int = 1


def read(data: Path) -> list[SmallStep]:
    """Steps on one GPU in FP32 (TF32 where the GPU has it)."""
    return [step for step in read_all(data) if step.devices == 1]


def read_all(data: Path) -> list[SmallStep]:
    """Steps on any number of GPUs of a machine, as many samples on each."""
    steps = []
    for row in rows(data / FILE):
        named = _RUN.fullmatch(row["file"])
        if named is None:
            continue
        target = device(named["gpu"])
        steps.append(
            SmallStep(
                model=f"torchvision:{row['model']}",
                device_id=target.id,
                host=row["run"],
                forward_only=named["mode"] == "inference",
                precision="tf32" if target.sheet.has("tf32_tensor_flop_per_second") else "fp32",
                seconds=float(row["median_ms"]) * 1e-3,
                devices=int(named["devices"]),
            )
        )
    return steps
