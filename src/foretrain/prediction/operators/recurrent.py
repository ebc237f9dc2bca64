"""Recurrent layers as in cuDNN: one product with all inputs, then one step after the other.

    forward  = inputs + steps · ( overhead + recurrent product of one step / efficiency )
    backward = steps · ( overhead + transposed product of one step / efficiency ) + weights + inputs
    weights  = the product of all gradients with all inputs and states

for each layer and direction. The product of one step is small and reads the recurrent weights again unless
they are in the cache; steps depend on each other and do not overlap. `overhead` covers the launches and gates
of a step; it is fitted for each generation, since newer libraries reduced it.

Reference: J. Appleyard, T. Kocisky, P. Blunsom, "Optimizing performance of recurrent neural networks on
GPUs", arXiv:1604.01946.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np

from foretrain.facts.calibrations import load_calibration
from foretrain.facts.devices import Device, devices
from foretrain.prediction.operators import matrix
from foretrain.prediction.operators.matrix import Products, units_of
from foretrain.prediction.operators.pricing import (
    Confidence,
    Floats,
    OperatorModel,
    Residuals,
    WorkTable,
    peaks,
    roofline_seconds,
)
from foretrain.workloads.ops import Direction, Kind

FILE = "recurrent.json"


@dataclass(frozen=True)
class RecurrentConstants:
    """The fitted constants; `efficiency` is that of one step's product relative to a linear layer."""

    forward_overhead_seconds: float
    backward_overhead_seconds: float
    efficiency: float


@dataclass(frozen=True, eq=False)
class RecurrentParts:
    """Seconds of the products of each work, over all layers and directions, without overhead."""

    inputs: Floats
    step: Floats
    weights: Floats
    steps: Floats
    is_backward: Floats


def parts(works: WorkTable, device: Device) -> RecurrentParts:
    """The products of recurrent layers."""
    steps, batch, hidden = works.dim("steps"), works.dim("batch"), works.dim("hidden")
    rows = works.dim("gates") * hidden
    layers = works.dim("layers") * works.dim("directions")
    first = works.dim("in", 0)
    later = hidden * works.dim("directions")
    inside = (first + later * (works.dim("layers") - 1)) / works.dim("layers")
    backward = (~works.directed(Direction.FORWARD)).astype(float)
    item = works.item_bytes
    reread = np.maximum(item * rows * hidden - device.l2_bytes, 0.0)

    def seconds(m: Floats, n: Floats, k: Floats, moved: Floats) -> Floats:
        work = Products(
            batch=np.ones(len(works)),
            m=m,
            n=n,
            k=k,
            item_bytes=item,
            bytes=moved,
            flop=2 * m * n * k,
            peak=peaks(works, device),
            is_plain=np.zeros(len(works), bool),
            is_bare=np.zeros(len(works), bool),
        )
        return matrix.modelled_seconds(work, works.once(units_of), device)

    tokens = steps * batch
    inputs = seconds(tokens, rows, inside, item * (tokens * (inside + rows) + rows * inside))
    step = np.where(
        backward > 0,
        seconds(batch, hidden, rows, reread + item * batch * rows),
        seconds(batch, rows, hidden, reread + item * batch * rows),
    )
    weights = seconds(rows, hidden + inside, tokens, item * (tokens * (rows + hidden + inside)))
    return RecurrentParts(
        inputs=np.where(inside > 0, inputs, 0.0) * layers,
        step=step,
        weights=np.where(backward > 0, weights, 0.0) * layers,
        steps=steps * layers,
        is_backward=backward,
    )


def recurrent_seconds(of: RecurrentParts, known: RecurrentConstants) -> Floats:
    """Seconds of recurrent layers."""
    overhead = np.where(of.is_backward > 0, known.backward_overhead_seconds, known.forward_overhead_seconds)
    return of.inputs + of.weights + of.steps * (overhead + of.step / known.efficiency)


@dataclass(frozen=True)
class RecurrentCalibration:
    """The calibration in `recurrent.json`; `data` counts the measurements of each source by device."""

    constants: Mapping[str, Mapping[str, RecurrentConstants]]
    data: tuple[Mapping[str, Any], ...]
    residuals: Residuals

    def of(self, unit: str, device: Device) -> RecurrentConstants:
        """The constants of a unit on a device."""
        return nearest(self.constants[unit], device)

    def is_measured(self, device: Device) -> bool:
        """Whether recurrent layers were measured on this device."""
        return any(device.id in source["measurements"] for source in self.data)


def nearest(known: Mapping[str, RecurrentConstants], device: Device) -> RecurrentConstants:
    """The constants of a device's generation, else of the latest measured generation."""
    latest = max(known, key=lambda name: max(_years(name)))
    return known.get(device.generation, known[latest])


def _years(generation: str) -> list[float]:
    members = [each for each in devices().values() if each.is_gpu and each.generation == generation]
    return [each.sheet.number("release_year") for each in members]


@cache
def calibration() -> RecurrentCalibration:
    """The shipped calibration."""
    return load_calibration(RecurrentCalibration, FILE)


class RecurrentModel(OperatorModel):
    """Prices fused recurrent layers, forward and backward."""

    name: ClassVar[str] = "recurrent"
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.RNN})

    def seconds(self, works: WorkTable, device: Device) -> Floats:
        """Device seconds of each work."""
        known, products = calibration(), parts(works, device)
        on_lanes = np.array([unit == "lanes" for unit in works.once(units_of)])
        times = np.where(
            on_lanes,
            recurrent_seconds(products, known.of("lanes", device)),
            recurrent_seconds(products, known.of("tensor", device)),
        )
        return np.maximum(times, roofline_seconds(works, device))

    def confidence(self, kind: Kind, device: Device) -> Confidence:
        """Residuals on measured or other devices."""
        del kind
        return calibration().residuals.confidence(calibration().is_measured(device), FILE)
