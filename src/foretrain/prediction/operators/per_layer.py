"""Per-layer regression, as published.

How many operations a layer takes: the complexity table of per-layer regression.

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

Per-layer regression, a model from the literature: a straight line for every type of layer on every GPU.

    t = b0 + b1 · complexity

with b0, b1 >= 0 by kind of layer, direction, type of number and device, and the complexity of
`layer_complexity`. It knows nothing of hardware, so a device that was not measured cannot be told: that is
an error, except that boards of one family (`v100-sxm2-16gb`, `v100-pcie-32gb`) stand in for each other. A
backward pass not measured on a device is its forward line times the ratio of backward to forward found on
devices that have both. Kinds nobody measured (pooling, copies, look-ups, updates) are taken for elementwise
works of as many elements, a loss for a softmax.

b0 holds what the stopwatch of the data set adds, as the method has it. The price is held above the roofline,
as for every model; the suite judges the bare lines.

Reference: E. Gianniti, L. Zhang, D. Ardagna, "Performance prediction of GPU-based deep learning
applications", SBAC-PAD 2018.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

import numpy as np

from foretrain.errors import MissingData
from foretrain.facts.devices import Device, family
from foretrain.facts.sheets import data_root
from foretrain.prediction.operators._base import Confidence, Knowledge, OperatorModel
from foretrain.prediction.operators.convolution import least_seconds, lower
from foretrain.prediction.operators.listing import Flags, Floats, WorkTable, table
from foretrain.prediction.operators.pricing import roofline_seconds
from foretrain.workloads.ops import MATRIX_KINDS, Direction, Kind

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


FILE = "per_layer.json"
ALIKE: Mapping[Kind, Kind] = {
    **dict.fromkeys(
        ROWS.keys() - MATRIX_KINDS - {Kind.SOFTMAX, Kind.NORMALISATION, Kind.ELEMENTWISE}, Kind.ELEMENTWISE
    ),
    Kind.LOSS: Kind.SOFTMAX,
}
"""The kind whose lines tell a kind that was not measured."""


@dataclass(frozen=True, order=True)
class LayerType:
    """What has a line of its own."""

    kind: Kind
    direction: Direction
    dtype: str

    def __str__(self) -> str:
        return f"{self.kind} {self.direction} {self.dtype}"


@dataclass(frozen=True)
class Line:
    """t = start + per operation · complexity, in seconds."""

    start_seconds: float
    seconds_per_operation: float

    def seconds(self, operations: Floats) -> Floats:
        """The time of layers of these complexities."""
        return self.start_seconds + self.seconds_per_operation * operations

    def scale(self, factor: float) -> Line:
        """The line of layers that take `factor` times as long."""
        return Line(self.start_seconds * factor, self.seconds_per_operation * factor)


@dataclass(frozen=True)
class Lines:
    """All lines fitted, by device and layer type (as text).

    `backward_over_forward` is the time of a backward layer over that of a forward one of as many operations.
    """

    by_device: Mapping[str, Mapping[str, Line]]
    backward_over_forward: Mapping[str, float]

    def line(self, layer: LayerType, device: Device) -> Line:
        """The line of a layer type on a device; `MissingData` says where that type was measured."""
        own = self._on(layer, device.id)
        if own is not None:
            return own
        for board in family(device.family):
            found = self._on(layer, board.id)
            if found is not None:
                return found
        raise MissingData(self._missing(layer, device))

    def measures(self, kind: Kind) -> bool:
        """Whether a kind has lines of its own anywhere."""
        return any(name.startswith(f"{kind} ") for lines in self.by_device.values() for name in lines)

    def _on(self, layer: LayerType, device_id: str) -> Line | None:
        lines = self.by_device.get(device_id, {})
        for direction in (layer.direction, *_WIDER.get(layer.direction, ())):
            name = str(LayerType(layer.kind, direction, layer.dtype))
            if name in lines:
                return lines[name]
            forward = lines.get(str(LayerType(layer.kind, Direction.FORWARD, layer.dtype)))
            if forward is not None and name in self.backward_over_forward:
                return forward.scale(self.backward_over_forward[name])
        return None

    def _missing(self, layer: LayerType, device: Device) -> str:
        forward = str(LayerType(layer.kind, Direction.FORWARD, layer.dtype))
        known = sorted(name for name, lines in self.by_device.items() if {forward, str(layer)} & set(lines))
        where = f"but on {', '.join(known)}" if known else "nor on any other device"
        return (
            f"per-layer regression predicts only what was measured: {layer} was not on {device.id}, {where}; "
            "`cost_model` foretrain predicts others"
        )


_WIDER = {
    Direction.INPUT_GRADIENT: (Direction.BACKWARD,),
    Direction.WEIGHT_GRADIENT: (Direction.BACKWARD,),
    Direction.UPDATE: (Direction.FORWARD,),
}
"""Directions measured only together, or not apart."""


def measured_as(layer: LayerType, lines: Lines) -> LayerType:
    """The layer type whose line tells another; whole numbers take the time of FP32 ones."""
    kind = layer.kind if lines.measures(layer.kind) else ALIKE.get(layer.kind, layer.kind)
    is_float = "float" in layer.dtype or layer.kind in MATRIX_KINDS
    return replace(layer, kind=kind, dtype=layer.dtype if is_float else "float32")


def layer_seconds(works: WorkTable, device: Device, lines: Lines) -> Floats:
    """What the lines say of works on a device, and nothing else."""
    places: dict[tuple[Kind, Direction, str], list[int]] = {}
    for place, work in enumerate(works.works):
        places.setdefault((work.kind, work.direction, work.dtype), []).append(place)
    seconds = np.zeros(len(works))
    for names, here in places.items():
        layer = measured_as(LayerType(*names), lines)
        operations = complexity(table([works.works[place] for place in here]), layer.kind)
        seconds[here] = lines.line(layer, device).seconds(operations)
    return seconds


@dataclass(frozen=True)
class Calibration:
    """What was learned, as read from `data/calibrations/per_layer.json`.

    `residuals`: quantiles of measured / predicted by kind, of shapes the fit had not seen;
    `residuals_by_ratio`: those of backward layers told by the ratio of other devices, where several have it.
    """

    lines: Lines
    residuals: Mapping[str, tuple[float, float]]
    residuals_by_ratio: Mapping[str, tuple[float, float]]

    def spread(self, kind: Kind, device: Device) -> tuple[float, float] | None:
        """Quantiles of measured / predicted of a kind, if it was measured on this very device."""
        own = [name for name in self.lines.by_device.get(device.id, {}) if name.startswith(f"{kind} ")]
        if not own:
            return None
        p10, p90 = self.residuals[kind.value]
        is_forward = all(name.startswith(f"{kind} {Direction.FORWARD} ") for name in own)
        low, high = self.residuals_by_ratio.get(kind.value, (p10, p90)) if is_forward else (p10, p90)
        return min(p10, low), max(p90, high)


@cache
def calibration() -> Calibration:
    """The shipped calibration."""
    raw = json.loads((data_root() / "calibrations" / FILE).read_text(encoding="utf-8"))
    by_device = {
        device_id: {
            layer: Line(found["start_seconds"], found["seconds_per_operation"])
            for layer, found in lines.items()
        }
        for device_id, lines in raw["lines"].items()
    }
    ratios = {layer: found["ratio"] for layer, found in raw["backward_over_forward"].items()}
    residuals, by_ratio = (
        {kind: (found["p10"], found["p90"]) for kind, found in raw[name].items()}
        for name in ("residuals", "residuals_by_ratio")
    )
    return Calibration(Lines(by_device, ratios), residuals, by_ratio)


class PerLayerModel(OperatorModel):
    """Prices every kind the rules know, on the devices that were measured."""

    name: ClassVar[str] = "per-layer"
    kinds: ClassVar[frozenset[Kind]] = frozenset(ROWS)
    cost_models: ClassVar[frozenset[str]] = frozenset({"per-layer"})
    device_kinds: ClassVar[frozenset[str]] = frozenset({"gpu", "cpu"})

    def seconds(self, works: WorkTable, device: Device) -> Floats:
        """The lines' times, but none below what the device could at best."""
        return np.maximum(layer_seconds(works, device, calibration().lines), _least(works, device))

    def confidence(self, kind: Kind, device: Device) -> Confidence:
        """Residuals of the kind on shapes not seen; of a kind or board not measured, the widest found."""
        known = calibration()
        own = known.spread(kind, device)
        spreads = list(known.residuals.values()) if own is None else [own]
        p10, p90 = min(low for low, _ in spreads), max(high for _, high in spreads)
        knowledge = Knowledge.EXTRAPOLATED if own is None else Knowledge.CALIBRATED
        return Confidence(knowledge, p10, p90, f"calibrations/{FILE}")


def _least(works: WorkTable, device: Device) -> Floats:
    """The roofline, where convolutions may save multiplications."""
    least = roofline_seconds(works, device)
    chosen = works.where(frozenset({Kind.CONVOLUTION}))
    if chosen.any():
        least[chosen] = least_seconds(lower(works.rows(chosen), device), device)
    return least
