"""NeuSight's measurements: single operators, operators inside one transformer layer, whole models.

PyTorch 2.1, FP32 with TF32 off, on P4, P100, V100, T4 and A100. Reference: S. Lee, A. Phanishayee,
D. Mahajan, "Forecasting GPU performance for deep learning training and inference", ASPLOS 2025.

Products. The columns M, N, K are rows, inner dimension and columns: the launched blocks are those of the
tiles of M x K in every batched product, and of M x N in the few where both agree. The P4's linear layers of
the authors' test split ran another library (kernels `sgemm_128x128x8_NT`), up to four times faster than the
same shapes of the training split; both are kept, since shapes alone do not separate them.

Vector operators have `B` rows of `H` elements; `add` takes two tensors, `addu` a tensor and a number.
Convolutions are 3x3 with stride 1.

Inside a layer, `linear` and `addmm` have a weight. Backward times exist on the V100 only; that of a product
is the sum of both gradients, two products. Each gradient was computed by calling its graph node with
gradients enabled, so that dropout's backward runs three kernels (mask to float, times scale, times gradient)
where a training step runs one: its work describes what was measured. Operators that pass their gradient on
unchanged launch nothing and are skipped.

Whole models use eager attention and no optimizer; a time is the mean of the five fastest of 25. Forward
passes alone are of models in inference mode without a loss; BERT is then a classifier, in training it
predicts tokens. Training times are of the forward pass without the loss and of the backward pass.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from calibration.datasets.measurements import Measurements, measurements, measurements_of, rows
from calibration.datasets.works import Convolution, product
from foretrain.facts.devices import device
from foretrain.workloads.ops import Direction, Kind, Work

SOURCE = "neusight"
PRODUCT_FILE = Path("neusight/ops_gemm_fp32.csv.gz")
VECTOR_FILE = Path("neusight/ops_vector_fp32.csv.gz")
CONVOLUTION_FILE = Path("neusight/ops_conv_fp32.csv.gz")
LAYER_FILE = Path("neusight/per_op_one_layer.csv.gz")
STEP_FILE = Path("neusight/end_to_end_fp32.csv")
_ITEM_BYTES = 4
_TWO_TENSORS = frozenset({"add", "mul", "div", "pow"})
_VECTOR_KINDS = {"softmax": Kind.SOFTMAX, "ln": Kind.NORMALISATION}
_FLOP_PER_ELEMENT = {Kind.SOFTMAX: 5.0, Kind.NORMALISATION: 5.0, Kind.ELEMENTWISE: 1.0}
_LINEAR_NAMES = ("query", "key", "value", "dense", "proj", "fc1", "fc2", "predictions_decoder", "lm_head")
_WITHOUT_BIAS = frozenset({"lm_head"})
_MASK_ITEM_BYTES = 1
_DROPOUT_KERNELS = 3
_MODELS = {
    "gpt2_large": "gpt2-large",
    "gpt3_xl": "gpt3-xl-neusight",
    "gpt3_27": "gpt3-2.7b",
    "opt_13": "opt-1.3b",
    "switchxl4": "switch-xl-4",
}


def read_products(data: Path) -> Measurements:
    """All single-operator measurements."""
    records = list(rows(data / PRODUCT_FILE))
    ids = {name: device(name).id for name in {row["device"] for row in records}}
    return measurements(
        SOURCE,
        [
            product(b, m, n, k, "float32", row["op"] == "linear", has_bias=row["op"] == "linear")
            for row in records
            for b, m, k, n in [[int(row[name]) for name in "BMNK"]]
        ],
        [ids[row["device"]] for row in records],
        [float(row["latency_ms"]) * 1e-3 for row in records],
        [row["op"] for row in records],
    )


def vector_work(op: str, rows_count: int, length: int) -> Work:
    """The work of one operator of the data set on a matrix of `rows_count` by `length`."""
    kind = _VECTOR_KINDS.get(op, Kind.ELEMENTWISE)
    elements = rows_count * length
    operands = 2 if op in _TWO_TENSORS else 1
    dims = {"elements": elements, "operands": operands}
    if kind is not Kind.ELEMENTWISE:
        dims = {"elements": elements, "rows": rows_count, "length": length, "over_batch": 0}
    read, write = float(_ITEM_BYTES * elements * operands), float(_ITEM_BYTES * elements)
    return Work(kind, Direction.FORWARD, dims, "float32", _FLOP_PER_ELEMENT[kind] * elements, read, write)


def read_vector_operators(data: Path) -> Measurements:
    """All single-operator measurements."""
    records = list(rows(data / VECTOR_FILE))
    ids = {name: device(name).id for name in {row["device"] for row in records}}
    return measurements(
        SOURCE,
        [vector_work(row["op"], int(row["B"]), int(row["H"])) for row in records],
        [ids[row["device"]] for row in records],
        [float(row["latency_ms"]) * 1e-3 for row in records],
        [row["op"] for row in records],
    )


def read_convolutions(data: Path) -> Measurements:
    """All convolutions."""
    records = list(rows(data / CONVOLUTION_FILE))
    ids = {name: device(name).id for name in {row["device"] for row in records}}
    return measurements(
        SOURCE,
        [_convolution(row).work(Direction.FORWARD) for row in records],
        [ids[row["device"]] for row in records],
        [float(row["latency_ms"]) * 1e-3 for row in records],
        ["forward"] * len(records),
    )


def _convolution(row: dict[str, str]) -> Convolution:
    size, kernel, stride, padding = (
        int(row[name]) for name in ("input_size", "kernel_size", "stride", "padding")
    )
    return Convolution(
        batch=int(row["B"]),
        in_channels=int(row["in_channels"]),
        out_channels=int(row["out_channels"]),
        size=(size, size),
        kernel=(kernel, kernel),
        stride=(stride, stride),
        padding=(padding, padding),
    )


def read_layer_products(data: Path) -> Measurements:
    """Forward products, one work for each measurement."""
    forward = [
        (work, name, seconds, label)
        for work, name, seconds, _, label in _layer_products(data / LAYER_FILE)
        if seconds > 0
    ]
    return measurements_of(SOURCE, forward)


def read_layer_product_gradients(data: Path) -> tuple[Measurements, Measurements]:
    """Backward products: the first gradients, with the measured sum of both, and the second gradients."""
    backward = [each for each in _layer_products(data / LAYER_FILE) if each[3] > 0]
    firsts, seconds = [], []
    for work, name, _, total, label in backward:
        first, second = gradients(work)
        firsts.append((first, name, total, label))
        seconds.append((second, name, total, label))
    return measurements_of(SOURCE, firsts), measurements_of(SOURCE, seconds)


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


def _layer_products(file: Path) -> Iterator[tuple[Work, str, float, float, str]]:
    for row in rows(file):
        work = _layer_product(row)
        if work is not None:
            name = device(row["device"].replace("_", " ")).id
            label = "linear" if "tokens" in work.dims else "matmul"
            yield work, name, float(row["fw_latency"]) * 1e-3, float(row["bw_latency"]) * 1e-3, label


def _layer_product(row: dict[str, str]) -> Work | None:
    name, shapes = row["Name"], ast.literal_eval(row["input_shapes"])
    if name.startswith("addmm"):
        (m, k), (_, n) = shapes[1:]
        return product(1, m, n, k, "float32", is_linear=True, has_bias=True)
    if name.startswith(("matmul", "bmm")) and len(shapes) == 2 and len(shapes[0]) > 2:
        *batch, m, k = shapes[0]
        return product(math.prod(batch), m, shapes[1][-1], k, "float32", is_linear=False)
    if row["op"] == "call_module" and name.endswith(_LINEAR_NAMES) and len(shapes) == 1:
        *tokens, k = shapes[0]
        n = ast.literal_eval(row["output_shape"])[-1]
        return product(
            1, math.prod(tokens), n, k, "float32", is_linear=True, has_bias=name not in _WITHOUT_BIAS
        )
    return None


def read_vector_gradients(data: Path) -> Measurements:
    """Backward of softmax, norms, activations, products by a number or a tensor, and dropout."""
    return measurements_of(SOURCE, _vector_gradients(data / LAYER_FILE))


def _vector_gradients(file: Path) -> Iterator[tuple[Work, str, float, str]]:
    for row in rows(file):
        milliseconds = float(row["bw_latency"])
        label = _vector_operator(row)
        if milliseconds > 0 and label:
            shape = ast.literal_eval(row["output_shape"])
            tensors = sum(math.prod(one) > 1 for one in ast.literal_eval(row["input_shapes"]))
            name = device(row["device"].replace("_", " ")).id
            yield _vector_gradient(label, shape, tensors), name, milliseconds * 1e-3, label


def _vector_operator(row: dict[str, str]) -> str:
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


def _vector_gradient(label: str, shape: tuple[int, ...], tensors: int) -> Work:
    elements = math.prod(shape)
    tensor = float(_ITEM_BYTES * elements)
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
        mask = float(_MASK_ITEM_BYTES * elements)
        kind, read, write, kernels = Kind.DROPOUT, mask + 3 * tensor, 3 * tensor, _DROPOUT_KERNELS
    return Work(kind, Direction.BACKWARD, dims, "float32", float(elements), read, write, kernels)


@dataclass(frozen=True, slots=True)
class MeasuredPass:
    """One whole-model measurement; `model` is the zoo's name."""

    model: str
    device_id: str
    batch: int
    seq_len: int
    is_training: bool
    is_compiled: bool
    seconds: float
    forward_seconds: float
    backward_seconds: float


def read_steps(data: Path) -> tuple[MeasuredPass, ...]:
    """All measurements."""
    return tuple(_passes(data / STEP_FILE))


def _passes(file: Path) -> Iterator[MeasuredPass]:
    for row in rows(file):
        is_training = row["mode"] == "train"
        bert = "bert-large" if is_training else "bert-large-classifier"
        yield MeasuredPass(
            model=_MODELS.get(row["model"], bert),
            device_id=device(row["device"].replace("_", " ")).id,
            batch=int(row["batch"]),
            seq_len=int(row["seq_len"]),
            is_training=is_training,
            is_compiled=row["compiled"] == "True",
            seconds=float(row["e2e_ms"]) * 1e-3,
            forward_seconds=float(row["forward_ms"]) * 1e-3,
            backward_seconds=float(row["backward_ms"]) * 1e-3,
        )
