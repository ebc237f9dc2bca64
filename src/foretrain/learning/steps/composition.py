"""What a priced step is made of: device seconds by class of operator, and what a harness charges for besides.

Classes are as coarse as a few models can tell apart: convolutions by kernel and pass, products, and the
memory-bound rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretrain.facts.devices import Device
from foretrain.prediction.operators import streaming
from foretrain.prediction.operators.pricing import PricedOps, peak_flop_per_second
from foretrain.workloads.graph import NO_TENSOR, Graph
from foretrain.workloads.ops import Direction, Kind, Op, Work

_CONVOLUTION = "aten.convolution"
_PRODUCTS = frozenset({Kind.LINEAR, Kind.MATMUL})


@dataclass(frozen=True)
class Composition:
    """One step on one device.

    `seconds` are the priced times of each class. `bias_seconds`: adding biases to convolutions' outputs in a
    pass of its own; `filter_seconds`: one pass over all convolutions' weights; `depthwise_seconds`: the FLOP
    of depthwise convolutions at the FP32 peak.
    """

    seconds: dict[str, float]
    launches: int
    input_bytes: int
    bias_seconds: float
    filter_seconds: float
    depthwise_seconds: float


@dataclass(frozen=True, eq=False)
class Classes:
    """The operators of a graph sorted into classes, once for all devices."""

    names: tuple[str, ...]
    of_op: tuple[int, ...]


def class_of(work: Work) -> str:
    """The class of one piece of work."""
    if work.kind is Kind.CONVOLUTION:
        passing = "forward" if work.direction is Direction.FORWARD else "backward"
        return f"{_kernel(work)} {passing}"
    if work.kind in _PRODUCTS:
        return "products"
    return work.kind.value if work.kind in (Kind.NORMALISATION, Kind.POOLING) else "streaming"


def _kernel(work: Work) -> str:
    dims = work.dims
    if dims["groups"] > 1:
        return "grouped"
    elements = dims["kernel_height"] * dims["kernel_width"]
    if elements == 1:
        return "1x1"
    return "3x3" if elements == 9 and dims["stride_height"] == 1 else "other"


def classes(ops: Sequence[Op]) -> Classes:
    """Sort a graph's operators; views belong to class -1."""
    numbers: dict[str, int] = {}
    found = [numbers.setdefault(class_of(op.work), len(numbers)) if op.work.kernels else -1 for op in ops]
    return Classes(tuple(numbers), tuple(found))


def composition(
    graph: Graph, priced: PricedOps, sorted_ops: Classes, device: Device, input_bytes: int
) -> Composition:
    """What a priced step is made of."""
    totals = np.zeros(len(sorted_ops.names) + 1)
    np.add.at(totals, np.array(sorted_ops.of_op), priced.seconds)
    bandwidth = device.memory_bytes_per_second * streaming.calibration().share(device)
    convolutions = [call for call in graph.calls if call.name == _CONVOLUTION]
    biased = [call for call in convolutions if len(call.inputs) > 2 and call.inputs[2] != NO_TENSOR]
    outputs = sum(graph.specs[call.outputs[0]].bytes for call in biased)
    filters = sum(graph.specs[call.inputs[1]].bytes for call in convolutions)
    grouped = sum(
        op.work.flop for op in priced.ops if op.work.kind is Kind.CONVOLUTION and op.work.dims["groups"] > 1
    )
    return Composition(
        seconds=dict(zip(sorted_ops.names, totals[:-1].tolist(), strict=True)),
        launches=sum(op.work.kernels for op in priced.ops),
        input_bytes=input_bytes,
        bias_seconds=2 * outputs / bandwidth,
        filter_seconds=filters / bandwidth,
        depthwise_seconds=grouped / peak_flop_per_second(device, "float32", matrix=False),
    )
