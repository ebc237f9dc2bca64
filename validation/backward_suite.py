"""Gradients of single operators inside one transformer layer: NeuSight, FP32, V100, predicted without a V100.

Per-operator backward times exist for the V100 only. They are predicted by operator models refitted without
any V100, from forward measurements of the other GPUs: no backward time is ever fitted. A linear layer's
gradient is two products, and a sum over the tokens where it has a bias.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from calibration.datasets.measurements import Measurements

from calibration.datasets import aiconfigurator, neusight
from calibration.kernels import products, streaming
from foretrain.facts.devices import device
from foretrain.prediction.operators import matrix
from foretrain.prediction.operators.matrix import MatrixModel
from foretrain.prediction.operators.pricing import Floats, OperatorModel, RooflineModel, table
from foretrain.prediction.operators.streaming import StreamingModel
from foretrain.workloads.ops import Direction, Kind, Work
from validation.report import Case, SuiteReport, metrics
from validation.splitting import worst

UNSEEN, SEEN, ROOFLINE = "foretrain, GPU unseen", "foretrain, GPU seen", "roofline"
_OFFSET_SECONDS = 8e-6
"""What calling a gradient between two events adds, the median over NeuSight's elementwise gradients."""
_ITEM = 4
_NOTES = (
    "NeuSight's own figure, on whole backward passes: 15 %.",
    "The offset of a timed gradient call (8 us, the median of elementwise ones) is added to every method.",
    "Gradients of batched products also copy their transposed operands, which the timings include and the "
    "prediction of a bare product does not: GPU seen, they are 8-31 % short. The smallest layers (a pooler "
    "of two to eight rows) are all launch.",
)


def run(data: Path) -> SuiteReport:
    """Refit without the GPU, price, compare."""
    vector, (first, second) = (
        neusight.read_vector_gradients(data),
        neusight.read_layer_product_gradients(data),
    )
    (name,) = vector.devices
    cycles = aiconfigurator.start_cycles(data)
    memory = streaming.calibration_without_family(neusight.read_vector_operators(data), cycles, device(name))
    known = products.calibration_without_family(products.corpus(data), device(name), memory)
    methods = {UNSEEN: _models(known), SEEN: _models(matrix.calibration()), ROOFLINE: (RooflineModel(),)}
    moved = _cases(vector, methods)
    multiplied = _cases(first, methods, second)
    sets = {"all": moved + multiplied, "products": multiplied, "memory-bound": moved}
    for label in sorted({case.group for case in (*moved, *multiplied)}):
        sets[label] = [case for case in (*moved, *multiplied) if case.group == label]
    by_set = {
        f"{title}, V100 left out": {method: metrics(cases, method) for method in methods}
        for title, cases in sets.items()
    }
    notes = (*_NOTES, f"Worst: {worst(moved + multiplied, UNSEEN, lambda case: case.group)}.")
    return SuiteReport("backward", (*moved, *multiplied), by_set, notes=notes)


def _models(known: matrix.ProductCalibration) -> tuple[OperatorModel, ...]:
    return (MatrixModel(known), StreamingModel(known.memory))


def _cases(
    measurements: Measurements,
    methods: Mapping[str, tuple[OperatorModel, ...]],
    second: Measurements | None = None,
) -> list[Case]:
    """One case per measurement; `second` are works measured together with those of `measurements`."""
    works = [list(measurements.works)] + ([] if second is None else [list(second.works)])
    if second is not None:
        works.append([_bias_gradient(work) for work in measurements.works])
    predicted = {
        method: np.sum([_seconds(each, measurements, models) for each in works], axis=0)
        for method, models in methods.items()
    }
    return [
        Case(
            name=f"{measurements.labels[row]} {_sizes(measurements.works[row])}",
            group=str(measurements.labels[row]),
            measured=float(measurements.seconds[row]),
            predicted={method: float(times[row]) + _OFFSET_SECONDS for method, times in predicted.items()},
        )
        for row in range(len(measurements))
    ]


def _seconds(works: list[Work], measurements: Measurements, models: tuple[OperatorModel, ...]) -> Floats:
    (name,) = measurements.devices
    everything, seconds = table(works), np.zeros(len(works))
    left = {work.kind for work in works}
    for model in models:
        mine = frozenset(left & model.kinds)
        left -= mine
        chosen = everything.where(mine)
        if chosen.any():
            seconds[chosen] = model.seconds(everything.rows(chosen), device(name))
    return seconds


def _bias_gradient(work: Work) -> Work:
    """The sum over tokens that a layer's bias asks for; nothing where there is none."""
    is_layer = "bias" in work.dims
    tokens, out = (work.dims["m"], work.dims["k"]) if is_layer else (0, 0)
    moved = float(_ITEM * tokens * out)
    dims = {"elements": tokens * out}
    kind = Kind.REDUCTION if is_layer else Kind.VIEW
    return Work(kind, Direction.BACKWARD, dims, work.dtype, float(tokens * out), moved, 0.0, int(is_layer))


def _sizes(work: Work) -> str:
    names = ("batch", "m", "n", "k") if work.kind in MatrixModel.kinds else ("rows", "length")
    return " x ".join(str(work.dims[name]) for name in names)
