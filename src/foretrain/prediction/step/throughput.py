"""Work per second, and model FLOP utilisation."""

from __future__ import annotations

from dataclasses import dataclass

from foretrain.facts.devices import Device
from foretrain.prediction.operators.pricing import peak_flop_per_second
from foretrain.workloads.graph import Graph
from foretrain.workloads.ops import MATRIX_KINDS
from foretrain.workloads.rules import operators

_DTYPES = {
    "fp32": "float32", "tf32": "tf32", "fp16": "float16", "bf16": "bfloat16", "fp8": "float8_e4m3fn",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Throughput:
    """Work per second. `tokens_per_second` is None for models without tokens.

    `mfu` is model FLOP utilisation: the FLOP/s of matrix products, convolutions, attention and recurrent
    layers, without recomputation, over the dense peak of all devices at the precision of the workload.
    """

    samples_per_second: float
    tokens_per_second: float | None
    mfu: float


def model_flop(graph: Graph) -> float:
    """FLOP of a step that count for MFU: no recomputation, no elementwise operators."""
    counted = (op for op in operators(graph) if op.work.kind in MATRIX_KINDS and not op.recomputed)
    return sum(op.work.flop for op in counted)


def peak(graph: Graph, device: Device) -> float:
    """The device's dense peak at the precision of a graph."""
    dtype = _DTYPES[graph.options.precision]
    return peak_flop_per_second(device, dtype, matrix=True)
