"""NeuSight's products inside one transformer layer: forward on five GPUs, backward on the V100; FP32.

`linear` and `addmm` have a weight; the backward time is that of both gradients, two products each.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from foretrain.facts.devices import device
from foretrain.learning.measurements._base import Measurements, measurements, rows
from foretrain.learning.measurements.product_works import product
from foretrain.workloads.ops import Direction, Work

FILE = Path("neusight/per_op_one_layer.csv.gz")
_LAYERS = ("query", "key", "value", "dense", "proj", "fc1", "fc2", "predictions_decoder", "lm_head")
_BARE = frozenset({"lm_head"})


def forward(data: Path) -> Measurements:
    """Forward products, one work for each measurement."""
    found = [
        (work, name, seconds, label) for work, name, seconds, _, label in _cases(data / FILE) if seconds > 0
    ]
    return _measurements(found)


def backward(data: Path) -> tuple[Measurements, Measurements]:
    """Backward products: the first gradients, with the measured sum of both, and the second gradients."""
    found = [each for each in _cases(data / FILE) if each[3] > 0]
    firsts, seconds = [], []
    for work, name, _, total, label in found:
        first, second = gradients(work)
        firsts.append((first, name, total, label))
        seconds.append((second, name, total, label))
    return _measurements(firsts), _measurements(seconds)


def gradients(work: Work) -> tuple[Work, Work]:
    """The two products of a product's backward pass: m x n x k becomes m x k x n and k x n x m.

    Gradients of a layer with a bias say so, for its own gradient is a sum over the tokens.
    """
    batch, m, n, k = (work.dims[name] for name in ("batch", "m", "n", "k"))
    is_linear, has_bias = "tokens" in work.dims, "bias" in work.dims
    first = product(batch, m, k, n, work.dtype, is_linear, has_bias)
    second = product(batch, k, n, m, work.dtype, is_linear, has_bias)
    return (
        replace(first, direction=Direction.INPUT_GRADIENT),
        replace(second, direction=Direction.WEIGHT_GRADIENT),
    )


def _measurements(found: list[tuple[Work, str, float, str]]) -> Measurements:
    return measurements(
        "neusight",
        [work for work, _, _, _ in found],
        [name for _, name, _, _ in found],
        [seconds for _, _, seconds, _ in found],
        [label for _, _, _, label in found],
    )


def _cases(file: Path) -> Iterator[tuple[Work, str, float, float, str]]:
    for row in rows(file):
        work = _work(row)
        if work is not None:
            name = device(row["device"].replace("_", " ")).id
            label = "linear" if "tokens" in work.dims else "matmul"
            yield work, name, float(row["fw_latency"]) * 1e-3, float(row["bw_latency"]) * 1e-3, label


def _work(row: dict[str, str]) -> Work | None:
    name, shapes = row["Name"], ast.literal_eval(row["input_shapes"])
    if name.startswith("addmm"):
        (m, k), (_, n) = shapes[1:]
        return product(1, m, n, k, "float32", is_linear=True, has_bias=True)
    if name.startswith(("matmul", "bmm")) and len(shapes) == 2 and len(shapes[0]) > 2:
        *batch, m, k = shapes[0]
        return product(math.prod(batch), m, shapes[1][-1], k, "float32", is_linear=False)
    if row["op"] == "call_module" and name.endswith(_LAYERS) and len(shapes) == 1:
        *tokens, k = shapes[0]
        n = ast.literal_eval(row["output_shape"])[-1]
        return product(1, math.prod(tokens), n, k, "float32", is_linear=True, has_bias=name not in _BARE)
    return None
