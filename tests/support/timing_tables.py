"""Tables of timings that follow a known law."""

from __future__ import annotations

from typing import Any

import numpy as np

from foretrain.learning.regression.table import Sample, sample_of, table_of

BATCHES = (8, 16, 24, 32, 48, 64)


def per_batch(noise: float = 0.0) -> list[dict[str, Any]]:
    """A step of 10 ms and 2 ms a sample."""
    random = np.random.default_rng(3)
    return [
        {"batch": batch, "seconds": (0.01 + 0.002 * batch) * (1 + noise * random.normal())}
        for batch in BATCHES
    ]


def jobs() -> list[dict[str, Any]]:
    """Two networks on three GPUs, batches and GPU counts; foretrain's prediction is 20 % short of the truth.

    seconds = (5 ms + work · batch / GFLOP/s) · (1 + 5 % for every doubling of the GPUs)
    """
    gflop = {"t4": 8141.0, "v100-sxm2-16gb": 15670.0, "p100-pcie": 9526.0}
    work = {"small": 10.0, "large": 40.0}
    rows = []
    for model, size in work.items():
        for device, speed in gflop.items():
            for batch in (8, 16, 32, 64):
                for gpus in (1, 2, 4):
                    seconds = (0.005 + size * batch / speed) * (1 + 0.05 * np.log2(gpus))
                    rows.append({"model": model, "device": device, "batch": batch, "gpus": gpus,
                                 "predicted_seconds": seconds / 1.25, "seconds": seconds})  # fmt: skip
    return rows


def sample(rows: list[dict[str, Any]], *features: str) -> Sample:
    """The sample of rows."""
    return sample_of(table_of(rows), "seconds", features)
