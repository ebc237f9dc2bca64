"""How many operations a layer takes: the complexity table of per-layer regression.

    layer            forward                backward
    convolution      Hf Wf Cin Cout         (2 Hf Wf Cin + 1) Cout
    fully connected  Hin Win Cin Cout       2 Hin Win Cin Cout
    loss             4 Cout - 1             Cout + 1
    normalisation    5 Cout + Cn - 2        8 Cout + Cn - 1
    pooling          Hf Wf Cout             (Hf Wf + 1) Cout
    activation       3 Cout                 4 Cout

Cout is read as all outputs of the layer over the batch, the only reading under which an activation's row
counts its operations. A work is one kernel where the table has one layer: the backward pass of a convolution
is the gradient of its input and that of its weight, Hf Wf Cin Cout each, and that of its bias, a sum over
Cout; the rows add up again. Attention and recurrent layers, which the table does not have, count their
multiply-adds, as a fully connected layer does.

Reference: E. Gianniti, L. Zhang, D. Ardagna, "Performance prediction of GPU-based deep learning
applications", SBAC-PAD 2018.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from foretrain.prediction.operators.table import Flags, Floats, WorkTable
from foretrain.workloads.ops import Direction, Kind

Row = Callable[[WorkTable], Floats]


def _convolution(works: WorkTable) -> Floats:
    axes = ("depth", "height", "width")
    window = np.prod([works.dim(f"kernel_{axis}") for axis in axes], axis=0)
    outputs = np.prod([works.dim(f"out_{axis}") for axis in axes], axis=0)
    inputs = np.prod([works.dim(axis) for axis in axes], axis=0)
    positions = np.where(works.dim("transposed", 0) > 0, inputs, outputs)
    channels = works.dim("in_channels") / works.dim("groups") * works.dim("out_channels")
    return np.asarray(window * channels * positions * works.dim("batch"))


def _fully_connected(works: WorkTable) -> Floats:
    return works.dim("batch") * works.dim("m") * works.dim("n") * works.dim("k")


def _multiply_adds(works: WorkTable) -> Floats:
    return works.flop / 2


def _loss(works: WorkTable) -> Floats:
    outputs = _outputs(works)
    return np.where(_is_backward(works), outputs + 1, 4 * outputs - 1)


def _normalisation(works: WorkTable) -> Floats:
    """Cn, the elements normalised together, is the length of a row."""
    outputs, together = _outputs(works), works.dim("length")
    return np.where(_is_backward(works), 8 * outputs + together - 1, 5 * outputs + together - 2)


def _pooling(works: WorkTable) -> Floats:
    """Of windows that do not overlap: then Hf Wf Cout is the input, the larger operand."""
    window = np.maximum(works.dim("kernel"), 1.0)
    inputs = _outputs(works)
    return np.where(_is_backward(works), (window + 1) * inputs / window, inputs)


def _activation(works: WorkTable) -> Floats:
    return np.where(_is_backward(works), 4.0, 3.0) * _outputs(works)


def _is_backward(works: WorkTable) -> Flags:
    return np.array([work.direction is Direction.BACKWARD for work in works.works], bool)


def _outputs(works: WorkTable) -> Floats:
    """Elements, however a kind names them; an update of many tensors counts what it writes."""
    rows = works.dim("rows") * works.dim("length")
    looked_up = works.dim("tokens") * works.dim("width")
    elements = works.dim("elements", 0)
    elements = np.where(elements > 0, elements, np.where(works.dim("width", 0) > 0, looked_up, rows))
    updated = works.where(frozenset({Kind.OPTIMIZER}))
    return np.where(updated, works.write_bytes / works.item_bytes, elements)


ROWS: Mapping[Kind, Row] = {
    **dict.fromkeys(frozenset(Kind) - {Kind.VIEW, Kind.UNKNOWN}, _activation),
    Kind.CONVOLUTION: _convolution,
    Kind.LINEAR: _fully_connected,
    Kind.MATMUL: _fully_connected,
    Kind.ATTENTION: _multiply_adds,
    Kind.RNN: _multiply_adds,
    Kind.LOSS: _loss,
    Kind.SOFTMAX: _loss,
    Kind.NORMALISATION: _normalisation,
    Kind.POOLING: _pooling,
}
"""The row of the table each kind is counted by."""


def complexity(works: WorkTable, kind: Kind) -> Floats:
    """Operations of works, counted by the row of a kind."""
    return ROWS[kind](works)
