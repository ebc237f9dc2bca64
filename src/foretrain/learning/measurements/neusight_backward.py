"""NeuSight's backward times of single operators inside one transformer layer: PyTorch 2.1, FP32, V100 only.

Each gradient was computed by calling its node of the graph with gradients enabled. Dropout's backward then
runs as three kernels (mask to float, times scale, times gradient) where a training step runs one: its work
says what was measured. Operators whose gradient is passed on unchanged launch nothing and are left out, and
so are matrix products.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from pathlib import Path

from foretrain.facts.devices import device
from foretrain.learning.measurements._base import Measurements, measurements, rows
from foretrain.workloads.ops import Direction, Kind, Work

FILE = Path("neusight/per_op_one_layer.csv.gz")
_ITEM = 4
_MASK_ITEM = 1
_DROPOUT_KERNELS = 3


def read(data: Path) -> Measurements:
    """Backward of softmax, norms, activations, products by a number or a tensor, and dropout."""
    found = list(_cases(data / FILE))
    return measurements(
        "neusight",
        [work for work, _, _, _ in found],
        [name for _, name, _, _ in found],
        [seconds for _, _, seconds, _ in found],
        [label for _, _, _, label in found],
    )


def _cases(file: Path) -> Iterator[tuple[Work, str, float, str]]:
    for row in rows(file):
        milliseconds = float(row["bw_latency"])
        label = _operator(row)
        if milliseconds > 0 and label:
            shape = ast.literal_eval(row["output_shape"])
            tensors = sum(math.prod(one) > 1 for one in ast.literal_eval(row["input_shapes"]))
            name = device(row["device"].replace("_", " ")).id
            yield _work(label, shape, tensors), name, milliseconds * 1e-3, label


def _operator(row: dict[str, str]) -> str:
    """Which of the operators modelled here a row is, or none."""
    name = row["Name"]
    if name.startswith(("softmax", "gelu", "tanh", "truediv")):
        return name.split("_")[0]
    if name.startswith("mul"):
        return "mul"
    if "dropout" in name or name.endswith("_drop"):
        return "dropout"
    if "layer_norm" in name or "_ln_" in name:
        return "norm"
    return ""


def _work(label: str, shape: tuple[int, ...], tensors: int) -> Work:
    elements = math.prod(shape)
    tensor = float(_ITEM * elements)
    dims = {"elements": elements, "rows": elements // shape[-1], "length": shape[-1], "over_batch": 0}
    kind, read, write, kernels = Kind.ELEMENTWISE, tensor, tensor, 1
    if label == "softmax":
        kind, read = Kind.SOFTMAX, 2 * tensor
    elif label == "norm":
        kind, read = Kind.NORMALISATION, 2 * tensor
    elif label in ("gelu", "tanh"):
        read = 2 * tensor
    elif label == "mul" and tensors > 1:
        read, write, kernels = 4 * tensor, 2 * tensor, 2
    elif label == "dropout":
        mask = float(_MASK_ITEM * elements)
        kind, read, write, kernels = Kind.DROPOUT, mask + 3 * tensor, 3 * tensor, _DROPOUT_KERNELS
    return Work(kind, Direction.BACKWARD, dims, "float32", float(elements), read, write, kernels)
