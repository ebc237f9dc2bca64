"""NeuSight's elementwise, softmax and layer-norm forward times: PyTorch 2.1, FP32, five GPUs.

`B` rows of `H` elements. `add` takes two tensors, `addu` a tensor and a number.
Reference: S. Lee, A. Phanishayee, D. Mahajan, "Forecasting GPU performance for deep learning training and
inference", ASPLOS 2025.
"""

from __future__ import annotations

from pathlib import Path

from foretrain.facts.devices import device
from foretrain.learning.measurements._base import Measurements, measurements, rows
from foretrain.workloads.ops import Direction, Kind, Work

FILE = Path("neusight/ops_vector_fp32.csv.gz")
_TWO_TENSORS = frozenset({"add", "mul", "div", "pow"})
_KINDS = {"softmax": Kind.SOFTMAX, "ln": Kind.NORMALISATION}
_FLOP = {Kind.SOFTMAX: 5.0, Kind.NORMALISATION: 5.0, Kind.ELEMENTWISE: 1.0}
_ITEM = 4


def work(op: str, rows_count: int, length: int) -> Work:
    """The work of one operator of the data set on a matrix of `rows_count` by `length`."""
    kind = _KINDS.get(op, Kind.ELEMENTWISE)
    elements = rows_count * length
    operands = 2 if op in _TWO_TENSORS else 1
    dims = {"elements": elements, "operands": operands}
    if kind is not Kind.ELEMENTWISE:
        dims = {"elements": elements, "rows": rows_count, "length": length, "over_batch": 0}
    read, write = float(_ITEM * elements * operands), float(_ITEM * elements)
    return Work(kind, Direction.FORWARD, dims, "float32", _FLOP[kind] * elements, read, write)


def read(data: Path) -> Measurements:
    """All single-operator measurements."""
    found = list(rows(data / FILE))
    ids = {name: device(name).id for name in {row["device"] for row in found}}
    return measurements(
        "neusight",
        [work(row["op"], int(row["B"]), int(row["H"])) for row in found],
        [ids[row["device"]] for row in found],
        [float(row["latency_ms"]) * 1e-3 for row in found],
        [row["op"] for row in found],
    )
