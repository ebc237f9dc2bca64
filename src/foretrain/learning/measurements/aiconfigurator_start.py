"""How long the shortest kernels take: aiconfigurator's smallest products, timed without host overhead."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import numpy as np

from foretrain.facts.devices import device
from foretrain.learning.measurements._base import rows

FILE = Path("aiconfigurator/gemm.csv.gz")
_DEVICES = {"a100_sxm": "a100-sxm-80gb", "l40s": "l40s", "h200_sxm": "h200-sxm", "b200_sxm": "b200"}
_SHORTEST = 0.01


def start_cycles(data: Path) -> float:
    """Cycles at boost clock of the shortest hundredth of kernels, the median over devices."""
    seconds: dict[str, list[float]] = {}
    for row in rows(data / FILE):
        if row["dtype"] == "bfloat16":
            seconds.setdefault(row["system"], []).append(float(row["latency_ms"]) * 1e-3)
    return median(
        float(np.quantile(found, _SHORTEST)) * device(_DEVICES[name]).sheet.number("boost_clock_hertz")
        for name, found in seconds.items()
    )
