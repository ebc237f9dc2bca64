"""Half-precision products of transformer layers: sustained (vidur), in short bursts (estimate-train-time).

vidur times the four projections of a block over and over, so the clock is the one that power allows for long.
Times are rounded to a microsecond, so short ones are left out; large token counts are what training runs, so
rows are drawn evenly over the logarithm of the FLOP. Most rows are up to 5 % noisy.

estimate-train-time idles before each of ten repeats and keeps the fast ones: the clock is still high and
products reach 90 % of peak. That is an upper bound for training, and the only public *backward* times of
linear layers in half precision: a backward pass is two products, one for each gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibration.datasets.measurements import Measurements, measurements_of, rows
from calibration.datasets.works import product
from foretrain.workloads.ops import Work

VIDUR_FILE = Path("vidur/layers_fp16.csv.gz")
BURST_FILE = Path("estimate_train_time/operators_fp16.csv.gz")
VIDUR, BURST = "vidur", "estimate_train_time"
ROWS_PER_DEVICE = 3000
_SHORTEST_SECONDS = 20e-6
"""Below it the rounding of vidur's times is more than 2 %."""


def _thin(cases: Sequence[tuple[Work, str, float, str]]) -> list[tuple[Work, str, float, str]]:
    """At most `ROWS_PER_DEVICE` rows of each device, drawn evenly over the logarithm of the FLOP."""
    kept = []
    for name in sorted({case[1] for case in cases}):
        mine = sorted((case for case in cases if case[1] == name), key=lambda case: (case[0].flop, case[2]))
        logs = np.log([case[0].flop for case in mine])
        grid = np.linspace(logs[0], logs[-1], ROWS_PER_DEVICE)
        places = np.unique(np.minimum(np.searchsorted(logs, grid), len(mine) - 1))
        kept += [mine[place] for place in places.tolist()]
    return kept


def read_sustained(data: Path) -> Measurements:
    """vidur's projections, a sample of each device."""
    cases = [
        (
            product(1, int(row["tokens"]), int(row["out"]), int(row["in"]), "float16", is_linear=True),
            row["device"],
            float(row["seconds"]),
            row["op"],
        )
        for row in rows(data / VIDUR_FILE)
        if row["op"].endswith("_proj") and float(row["seconds"]) >= _SHORTEST_SECONDS
    ]
    return measurements_of(VIDUR, _thin(cases))


def _burst_product(row: dict[str, str]) -> Work:
    """The forward product of a row: a linear layer, scores (`baddbmm`) or values (`bmm`) of attention."""
    batch, length = int(row["batch"]), int(row["seq_len"])
    if row["op"].startswith("linear"):
        return product(1, batch * length, int(row["out"]), int(row["in"]), "float16", is_linear=True)
    heads, head = int(row["heads"]) // int(row["tensor_parallel"]), int(row["width"]) // int(row["heads"])
    n, k = (length, head) if row["op"] == "baddbmm" else (head, length)
    return product(batch * heads, length, n, k, "float16", is_linear=False)


def _is_product(row: dict[str, str]) -> bool:
    return row["op"].startswith("linear") or row["op"] in ("bmm", "baddbmm")


def read_bursts(data: Path) -> Measurements:
    """The forward products of estimate-train-time."""
    return measurements_of(
        BURST,
        [
            (_burst_product(row), row["device"], float(row["seconds"]), row["op"])
            for row in rows(data / BURST_FILE)
            if row["phase"] == "forward" and _is_product(row)
        ],
    )


@dataclass(frozen=True, eq=False)
class Backward:
    """Backward passes: the two gradients of each, and the seconds of both together."""

    inputs: Measurements
    weights: Measurements


def read_burst_gradients(data: Path) -> Backward:
    """The backward passes of estimate-train-time; both parts carry the time of the whole pass."""
    inputs, weights = [], []
    for row in rows(data / BURST_FILE):
        if row["phase"] == "backward" and _is_product(row):
            dims = _burst_product(row).dims
            batch, m, n, k = (dims[name] for name in ("batch", "m", "n", "k"))
            is_linear = row["op"].startswith("linear")
            measured = (row["device"], float(row["seconds"]), row["op"])
            inputs.append((product(batch, m, k, n, "float16", is_linear), *measured))
            weights.append((product(batch, n, k, m, "float16", is_linear), *measured))
    return Backward(measurements_of(BURST, inputs), measurements_of(BURST, weights))
