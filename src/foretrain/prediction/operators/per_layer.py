"""Per-layer regression, a published baseline: one line for every type of layer on every GPU.

    t = b0 + b1 · complexity

with b0, b1 >= 0 by kind of layer, direction, number type and device. The complexity is a number of operations
per layer:

    layer            forward                backward
    convolution      Hf Wf Cin Cout         (2 Hf Wf Cin + 1) Cout
    fully connected  Hin Win Cin Cout       2 Hin Win Cin Cout
    loss             4 Cout - 1             Cout + 1
    normalisation    5 Cout + Cn - 2        8 Cout + Cn - 1
    pooling          Hf Wf Cout             (Hf Wf + 1) Cout
    activation       3 Cout                 4 Cout

Cout is interpreted as all outputs of the layer over the batch, the only interpretation under which the row of
an activation counts its operations. A work is one kernel, while the table has whole layers: the backward pass
of a convolution is the gradient of its input and of its weight, Hf Wf Cin Cout each, and of its bias, a sum
over Cout; they add up to the row of the table. Attention and recurrent layers are not in the table; their
complexity is the number of multiply-adds, as for a fully connected layer.

The model does not depend on properties of the hardware, so it cannot predict a device that was not measured:
that is an error, except that boards of one family (`v100-sxm2-16gb`, `v100-pcie-32gb`) replace each other. If
the backward pass was not measured on a device, its line is the forward line times the ratio of backward to
forward on devices with both. Kinds that were not measured (pooling, copies, look-ups, updates) are treated as
elementwise works with as many elements, a loss as a softmax.

b0 includes the measurement overhead of the data set, as in the publication. Prices are at least the roofline,
as for every model; the validation suite judges the lines themselves.

Reference: E. Gianniti, L. Zhang, D. Ardagna, "Performance prediction of GPU-based deep learning
applications", SBAC-PAD 2018.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import ClassVar

import numpy as np

from foretrain.errors import MissingData
from foretrain.estimates import Quantiles
from foretrain.facts.calibrations import calibration_content
from foretrain.facts.devices import Device, family
from foretrain.persisted import restore
from foretrain.prediction.operators.convolution import least_seconds, lower
from foretrain.prediction.operators.pricing import (
    PER_LAYER,
    Confidence,
    Floats,
    Knowledge,
    OperatorModel,
    WorkTable,
    roofline_seconds,
    table,
)
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
    return np.where(works.directed(Direction.BACKWARD), outputs + 1, 4 * outputs - 1)


def _normalisation(works: WorkTable) -> Floats:
    """Cn, the number of elements normalised together, is the length of a row."""
    outputs, length = _outputs(works), works.dim("length")
    return np.where(works.directed(Direction.BACKWARD), 8 * outputs + length - 1, 5 * outputs + length - 2)


def _pooling(works: WorkTable) -> Floats:
    """For windows that do not overlap: then Hf Wf Cout is the size of the input, the larger operand."""
    window = np.maximum(works.dim("kernel"), 1.0)
    inputs = _outputs(works)
    return np.where(works.directed(Direction.BACKWARD), (window + 1) * inputs / window, inputs)


def _activation(works: WorkTable) -> Floats:
    return np.where(works.directed(Direction.BACKWARD), 4.0, 3.0) * _outputs(works)


def _outputs(works: WorkTable) -> Floats:
    """Number of elements, by the dimensions of each kind; for updates, the elements written."""
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
"""The row of the table for each kind."""


def complexity(works: WorkTable, kind: Kind) -> Floats:
    """Operations of works, by the row of a kind."""
    return ROWS[kind](works)


FILE = "per_layer.json"
SUBSTITUTES: Mapping[Kind, Kind] = {
    **dict.fromkeys(
        ROWS.keys() - MATRIX_KINDS - {Kind.SOFTMAX, Kind.NORMALISATION, Kind.ELEMENTWISE}, Kind.ELEMENTWISE
    ),
    Kind.LOSS: Kind.SOFTMAX,
}
"""The kinds that replace kinds without measurements."""


@dataclass(frozen=True, order=True)
class LayerType:
    """The key of a line."""

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
        """The time of layers with these complexities."""
        return self.start_seconds + self.seconds_per_operation * operations

    def scale(self, factor: float) -> Line:
        """The line of layers that take `factor` times as long."""
        return Line(self.start_seconds * factor, self.seconds_per_operation * factor)


@dataclass(frozen=True)
class LayerCalibration:
    """The calibration in `data/calibrations/per_layer.json`: lines by device and layer type (as text).

    `backward_over_forward` is the time of a backward layer over that of a forward layer of equal complexity.
    `residuals`: quantiles of measured / predicted by kind, on shapes that were not fitted;
    `residuals_by_ratio`: those of backward layers predicted by the ratio of other devices.
    """

    lines: Mapping[str, Mapping[str, Line]]
    backward_over_forward: Mapping[str, float]
    residuals: Mapping[str, Quantiles] = field(default_factory=dict)
    residuals_by_ratio: Mapping[str, Quantiles] = field(default_factory=dict)

    def line(self, layer: LayerType, device: Device) -> Line:
        """The line of a layer type on a device; `MissingData` lists the devices with measurements."""
        own = self._on(layer, device.id)
        if own is not None:
            return own
        for board in family(device.family):
            line = self._on(layer, board.id)
            if line is not None:
                return line
        raise MissingData(self._missing(layer, device))

    def measures(self, kind: Kind) -> bool:
        """Whether a kind was measured on any device."""
        return any(name.startswith(f"{kind} ") for lines in self.lines.values() for name in lines)

    def spreads(self, kind: Kind, device: Device) -> tuple[Quantiles, ...]:
        """Quantiles of measured / predicted of a kind, if it was measured on this device."""
        own = [name for name in self.lines.get(device.id, {}) if name.startswith(f"{kind} ")]
        if not own:
            return ()
        is_forward = all(name.startswith(f"{kind} {Direction.FORWARD} ") for name in own)
        by_ratio = self.residuals_by_ratio.get(kind.value) if is_forward else None
        return (self.residuals[kind.value], *([by_ratio] if by_ratio else []))

    def _on(self, layer: LayerType, device_id: str) -> Line | None:
        lines = self.lines.get(device_id, {})
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
        known = sorted(name for name, lines in self.lines.items() if {forward, str(layer)} & set(lines))
        where = f"only on {', '.join(known)}" if known else "nor on any other device"
        return (
            f"cost_model per-layer requires measurements: {layer} was not measured on {device.id}, {where}; "
            "use cost_model foretrain"
        )


_WIDER = {
    Direction.INPUT_GRADIENT: (Direction.BACKWARD,),
    Direction.WEIGHT_GRADIENT: (Direction.BACKWARD,),
    Direction.UPDATE: (Direction.FORWARD,),
}
"""Directions that were only measured together."""


def substitute_measured(layer: LayerType, known: LayerCalibration) -> LayerType:
    """The layer type with the line for another one; integers have the time of FP32."""
    kind = layer.kind if known.measures(layer.kind) else SUBSTITUTES.get(layer.kind, layer.kind)
    is_float = "float" in layer.dtype or layer.kind in MATRIX_KINDS
    return replace(layer, kind=kind, dtype=layer.dtype if is_float else "float32")


def layer_seconds(works: WorkTable, device: Device, known: LayerCalibration) -> Floats:
    """The times of works by the lines alone."""
    places: dict[tuple[Kind, Direction, str], list[int]] = {}
    for place, work in enumerate(works.works):
        places.setdefault((work.kind, work.direction, work.dtype), []).append(place)
    seconds = np.zeros(len(works))
    for names, here in places.items():
        layer = substitute_measured(LayerType(*names), known)
        operations = complexity(table([works.works[place] for place in here]), layer.kind)
        seconds[here] = known.line(layer, device).seconds(operations)
    return seconds


@cache
def calibration() -> LayerCalibration:
    """The shipped calibration."""
    raw = calibration_content(FILE)
    ratios = {layer: fit["ratio"] for layer, fit in raw["backward_over_forward"].items()}
    return restore(LayerCalibration, {**raw, "backward_over_forward": ratios}, FILE)


class PerLayerModel(OperatorModel):
    """Prices all kinds with rules, on the devices that were measured."""

    name: ClassVar[str] = PER_LAYER
    kinds: ClassVar[frozenset[Kind]] = frozenset(ROWS)
    cost_models: ClassVar[frozenset[str]] = frozenset({PER_LAYER})
    device_kinds: ClassVar[frozenset[str]] = frozenset({"gpu", "cpu"})
    precision: ClassVar[str | None] = "fp32"

    def seconds(self, works: WorkTable, device: Device) -> Floats:
        """The times of the lines, at least the lower bound of the device."""
        return np.maximum(layer_seconds(works, device, calibration()), _least(works, device))

    def confidence(self, kind: Kind, device: Device) -> Confidence:
        """Residuals of the kind on other shapes; for a kind or board without measurements, the widest."""
        known = calibration()
        own = known.spreads(kind, device)
        spreads = own or known.residuals.values()
        p10, p90 = min(each.p10 for each in spreads), max(each.p90 for each in spreads)
        knowledge = Knowledge.CALIBRATED if own else Knowledge.EXTRAPOLATED
        return Confidence(knowledge, p10, p90, f"calibrations/{FILE}")


def _least(works: WorkTable, device: Device) -> Floats:
    """The roofline, with the savings of Winograd convolutions."""
    least = roofline_seconds(works, device)
    mask = works.where(frozenset({Kind.CONVOLUTION}))
    if mask.any():
        least[mask] = least_seconds(lower(works.rows(mask), device), device)
    return least
