"""DeepBench's recurrent layers: forward and backward of vanilla, LSTM and GRU layers, FP32 and FP16.

The layers skip the product with the input (cuDNN's "skip input"): only the recurrent product is done. Where
backward is split by gradient the two parts are added.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from foretrain.learning.measurements._base import Measurements, measurements, rows
from foretrain.learning.measurements.deepbench_convolution import _DEVICES as DEVICES
from foretrain.learning.measurements.deepbench_products import FILE
from foretrain.workloads.ops import Direction, Kind, Work

_TITLE = "Recurrent Layers - "
_GATES = {"Vanilla": 1, "LSTM": 4, "GRU": 3}


def work(gates: int, hidden: int, batch: int, steps: int, dtype: str, direction: Direction) -> Work:
    """A layer without the product with its input: `in` is 0."""
    dims = {"steps": steps, "batch": batch, "in": 0, "hidden": hidden}
    dims |= {"layers": 1, "directions": 1, "gates": gates}
    passes = 1 if direction is Direction.FORWARD else 2
    item = 2 if dtype == "float16" else 4
    flop = passes * 2.0 * steps * batch * gates * hidden * hidden
    moved = float(item * (gates * hidden * hidden + passes * steps * batch * hidden))
    return Work(Kind.RNN, direction, dims, dtype, flop, moved, float(item * steps * batch * hidden), steps)


def read(data: Path) -> Measurements:
    """All layers on known devices."""
    found = list(_cases(data / FILE))
    return measurements(
        "deepbench",
        [each for each, _, _ in found],
        [device_id for _, device_id, _ in found],
        [seconds for _, _, seconds in found],
        [each.direction.value for each, _, _ in found],
    )


def _cases(file: Path) -> Iterator[tuple[Work, str, float]]:
    header: dict[str, str] = {}
    gates = 0
    for row in rows(file):
        if row["c0"]:
            header = {}
            if row["c0"].startswith(_TITLE):
                gates = _GATES[row["c0"].removeprefix(_TITLE).strip()]
                header = {text.strip().lower(): name for name, text in row.items() if text}
        elif header and row["file"] in DEVICES and "Psuedo" not in row["sheet"]:
            yield from _works(row, header, gates)


def _works(
    row: Mapping[str, str], header: Mapping[str, str], gates: int
) -> Iterator[tuple[Work, str, float]]:
    def milliseconds(start: str) -> list[float]:
        return [float(row[name]) for title, name in header.items() if title.startswith(start) and row[name]]

    try:
        hidden, batch, steps = (int(float(row[header[name]])) for name in ("hidden units", "n", "timesteps"))
        forward, backward = sum(milliseconds("time forward")), sum(milliseconds("time backward"))
    except ValueError:  # a heading or a remark between tables
        return
    dtype = "float16" if "FP16" in row["sheet"] else "float32"
    for direction, total in ((Direction.FORWARD, forward), (Direction.BACKWARD, backward)):
        if total > 0:
            done = work(gates, hidden, batch, steps, dtype, direction)
            yield done, DEVICES[row["file"]], total * 1e-3
