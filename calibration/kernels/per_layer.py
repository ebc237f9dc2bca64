"""Makes `calibrations/per_layer.json`: a line for every layer type on every GPU, their errors by shape.

Lines are fitted to relative errors, robustly, with both coefficients above zero. The backward pass of
products was measured as the sum of two gradients, which share the time by half. Dropout's backward is left
out: its measurement is not what a training step runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from calibration.datasets import aiconfigurator, deepbench, neusight
from calibration.datasets.measurements import Measurements
from calibration.files import data_used, spread
from calibration.least_squares import minimise
from foretrain.facts.devices import device
from foretrain.prediction.operators.per_layer import FILE as FILE
from foretrain.prediction.operators.per_layer import LayerCalibration, LayerType, Line, complexity
from foretrain.prediction.operators.pricing import Flags, Floats
from foretrain.workloads.ops import Direction, Kind

FOLDS = 3
_LEAST = 8
"""Fewer measurements than this make no line of their own."""


@dataclass(frozen=True, eq=False)
class Sample:
    """The measurements of one layer type on one device."""

    device_id: str
    layer: LayerType
    operations: Floats
    seconds: Floats
    fold: np.ndarray[Any, np.dtype[np.int64]]

    def __len__(self) -> int:
        return len(self.seconds)

    def rows(self, chosen: Flags) -> Sample:
        """Only the chosen rows."""
        return replace(
            self,
            operations=self.operations[chosen],
            seconds=self.seconds[chosen],
            fold=self.fold[chosen],
        )


def read(data: Path) -> tuple[Measurements, ...]:
    """All measurements of single layers, forward and backward."""
    gradients, _ = neusight.read_layer_product_gradients(data)
    gradients = replace(
        gradients,
        works=tuple(replace(work, direction=Direction.BACKWARD) for work in gradients.works),
        seconds=gradients.seconds / 2,
    )
    backward = neusight.read_vector_gradients(data)
    return (
        neusight.read_vector_operators(data),
        neusight.read_products(data),
        neusight.read_convolutions(data),
        backward.where(~backward.table.where(frozenset({Kind.DROPOUT}))),
        gradients,
        deepbench.read_convolutions(data),
        deepbench.read_products(data),
        deepbench.read_recurrent(data),
        aiconfigurator.read_products(data),
        aiconfigurator.read_attention(data),
    )


def samples(data_sets: Sequence[Measurements]) -> tuple[Sample, ...]:
    """Measurements by device and layer type, several data sets together."""
    parts: dict[tuple[str, LayerType], list[Sample]] = {}
    for one in data_sets:
        for part in _parts(one):
            parts.setdefault((part.device_id, part.layer), []).append(part)
    return tuple(
        Sample(
            device_id,
            layer,
            np.concatenate([part.operations for part in same_layer]),
            np.concatenate([part.seconds for part in same_layer]),
            np.concatenate([part.fold for part in same_layer]),
        )
        for (device_id, layer), same_layer in sorted(parts.items())
    )


def _parts(measurements: Measurements) -> Iterator[Sample]:
    types = np.array(
        [LayerType(work.kind, work.direction, work.dtype) for work in measurements.works], object
    )
    fold = measurements.fold(FOLDS)
    for layer in sorted(set(types.tolist())):
        for device_id in measurements.devices:
            here = np.array(types == layer, bool) & (measurements.device_ids == device_id)
            if here.any():
                operations = complexity(measurements.table.rows(here), layer.kind)
                yield Sample(device_id, layer, operations, measurements.seconds[here], fold[here])


def fit_line(operations: Floats, seconds: Floats) -> Line:
    """The line with the least robust relative error; both of its coefficients are positive."""

    def residuals(x: Floats) -> Floats:
        predicted: Floats = np.exp(x[0]) + np.exp(x[1]) * operations
        return np.log(predicted / seconds)

    order = np.argsort(operations)
    largest = order[-max(1, len(order) // 10) :]
    start = np.log([np.min(seconds), np.median(seconds[largest] / operations[largest])])
    first, slope = np.exp(minimise(residuals, start)).tolist()
    return Line(first, slope)


def fit(parts: Sequence[Sample]) -> LayerCalibration:
    """Lines of everything measured often enough, and what backward costs over forward."""
    by_device: dict[str, dict[str, Line]] = {}
    for part in parts:
        if len(part) >= _LEAST:
            line = fit_line(part.operations, part.seconds)
            by_device.setdefault(part.device_id, {})[str(part.layer)] = line
    return LayerCalibration(by_device, _backward_over_forward(parts, by_device))


def _backward_over_forward(
    parts: Sequence[Sample], by_device: Mapping[str, Mapping[str, Line]]
) -> dict[str, float]:
    """The median time of backward layers over the forward line of their device, equal weight each."""
    ratios: dict[str, list[float]] = {}
    for part in parts:
        forward = by_device.get(part.device_id, {}).get(str(_forward(part.layer)))
        if part.layer.direction is not Direction.FORWARD and forward is not None:
            over = part.seconds / forward.seconds(part.operations)
            ratios.setdefault(str(part.layer), []).append(float(np.median(over)))
    return {layer: float(np.median(values)) for layer, values in ratios.items()}


def backward_unseen(parts: Sequence[Sample]) -> Iterator[tuple[Sample, Floats]]:
    """Backward layers as predicted by their device's forward line and the ratio of the other devices."""
    for part in parts:
        others = [one for one in parts if one.device_id != part.device_id]
        own = [one for one in parts if one.device_id == part.device_id and one.layer == _forward(part.layer)]
        if part.layer.direction is not Direction.FORWARD and own:
            same_layer = [one for one in others if one.layer in (part.layer, _forward(part.layer))]
            fitted = fit([*same_layer, *own])
            if str(part.layer) in fitted.backward_over_forward:
                yield part, fitted.line(part.layer, device(part.device_id)).seconds(part.operations)


def _forward(layer: LayerType) -> LayerType:
    return replace(layer, direction=Direction.FORWARD)


def shape_unseen(parts: Sequence[Sample]) -> tuple[Floats, ...]:
    """Predictions of each measurement by a line without its shape; NaN where too few are left."""
    predictions = []
    for part in parts:
        predicted = np.full(len(part), np.nan)
        for number in range(FOLDS):
            seen = part.fold != number
            if int(seen.sum()) >= _LEAST:
                line = fit_line(part.operations[seen], part.seconds[seen])
                predicted[~seen] = line.seconds(part.operations[~seen])
        predictions.append(predicted)
    return tuple(predictions)


def calibrate(data: Path) -> Mapping[str, Any]:
    """The content of the calibration file."""
    data_sets = read(data)
    parts = samples(data_sets)
    lines, predictions, by_ratio = fit(parts), shape_unseen(parts), tuple(backward_unseen(parts))
    count = {(part.device_id, str(part.layer)): len(part) for part in parts}
    return {
        "model": "per-layer",
        "data": data_used(data_sets),
        "residuals_of": "measured / predicted, over all devices: by shapes left out; by ratio, backward "
        "layers predicted by their forward line and the ratio of other devices",
        "residuals": _spreads(zip(parts, predictions, strict=True)),
        "residuals_by_ratio": _spreads(by_ratio),
        "backward_over_forward": {
            layer: {
                "ratio": ratio,
                "measurements": {part.device_id: len(part) for part in parts if str(part.layer) == layer},
            }
            for layer, ratio in lines.backward_over_forward.items()
        },
        "lines": {
            device_id: {
                layer: {
                    "start_seconds": line.start_seconds,
                    "seconds_per_operation": line.seconds_per_operation,
                    "measurements": count[device_id, layer],
                }
                for layer, line in by_layer.items()
            }
            for device_id, by_layer in lines.lines.items()
        },
    }


def _spreads(predictions_of: Iterable[tuple[Sample, Floats]]) -> dict[str, dict[str, float]]:
    """Quantiles of measured over predicted by kind, where a line could predict."""
    pairs: dict[str, tuple[list[Floats], list[Floats]]] = {}
    for part, predicted in predictions_of:
        known = np.isfinite(predicted)
        measured, predictions = pairs.setdefault(part.layer.kind.value, ([], []))
        measured.append(part.seconds[known])
        predictions.append(predicted[known])
    return {kind: spread(np.concatenate(a), np.concatenate(b)) for kind, (a, b) in sorted(pairs.items())}
