"""Memory-bound kernels: NeuSight's elementwise, softmax and layer-norm times, per-operator backward, layers.

Every measurement is predicted twice: by a fit without its shape on any GPU, and by a fit without its GPU.
What the stopwatch adds (the dispatch floor of each operator on each host) is taken from the tiny works of the
same host: it is a property of the harness, not of the GPU. Published stream bandwidths are facts and may be
used for a GPU left out; "nor its bandwidth" does without them too.

Liger's eager layers (norms, gated MLPs, rotary embeddings, softmax, losses) are in no fit: each is traced,
forward and backward, and the prices of its kernels are added up. Only times above 50 us count.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from calibration.datasets.measurements import Measurements
from calibration.kernels.harness import floors, observed
from calibration.kernels.streaming import Predictions, cross_validate, fit, samples

from calibration.datasets import aiconfigurator, liger, neusight
from foretrain.facts.devices import device
from foretrain.prediction.operators import matrix
from foretrain.prediction.operators.matrix import MatrixModel
from foretrain.prediction.operators.pricing import Floats, Listing, operator_models, price, roofline_seconds
from foretrain.prediction.operators.streaming import stream_seconds, streams
from foretrain.workloads.graph import Graph
from foretrain.workloads.rules import operators
from validation.report import Case, Metrics, SuiteReport, metrics

SHAPE, GPU, ROOFLINE = "foretrain, shape unseen", "foretrain, GPU unseen", "roofline"
STRICT = "foretrain, GPU unseen, nor its bandwidth"
SOURCE = "foretrain, source unseen"
_LAYERS = "Liger layers, eager"
_SHORTEST_SECONDS = 50e-6
_NAMES = {"softmax": "softmax", "ln": "layer norm"}
_HALF_BEFORE = 0.5
_BACKWARD_OFFSET_SECONDS = 8e-6
"""What calling a gradient between two events adds, the median over NeuSight's elementwise gradients."""
_NOTES = (
    "NeuSight itself: 14 / 19 / 20 % (elementwise, softmax, layer norm) on GPUs it was trained on, "
    "14 / 19 / 57 % on those it was not; 15 % on whole backward passes.",
    "Times include the harness floor, which dominates small works; sets named 'above the floor' hold the "
    "times of at least twice that floor.",
    "Per-operator backward times exist for the V100 alone; the fit that predicts them never saw a V100.",
    "Liger is in no fit, but the bytes of losses and the share of peak of the RTX 4090 were corrected with "
    "its rows in view. Rotary embeddings (predicted 0.58 of the time) and Hugging Face's RMS norm (0.76) "
    "multiply broadcast or strided operands; that PyTorch reads these item by item is likely, and not "
    "modelled. A group norm on the B200 takes four times what its bytes say. A loss of few classes waits for "
    "PyTorch's single block of 32 threads (NLLLoss.cu).",
)


def run(data: Path) -> SuiteReport:
    """Fit, leave out, compare."""
    measurements = neusight.read_vector_operators(data)
    cycles = aiconfigurator.start_cycles(data)
    predictions = cross_validate(measurements, cycles)
    cases = _cases(measurements, predictions)
    backward = _backward_cases(measurements, neusight.read_vector_gradients(data), cycles)
    groups: dict[str, list[Case]] = {}
    for case, floor in zip(cases, floors(measurements).tolist(), strict=True):
        kind = case.name.split(" on ")[0]
        groups.setdefault(kind, []).append(case)
        if case.measured >= 2 * floor:
            groups.setdefault(f"{kind}, above the floor", []).append(case)
        groups.setdefault(f"{kind} on {case.group}", []).append(case)
    by_set = {name: _by_method(group) for name, group in sorted(groups.items())}
    by_set["backward, V100 left out"] = {
        GPU: metrics(backward, GPU),
        ROOFLINE: metrics(backward, ROOFLINE),
    }
    layers: dict[str, list[Case]] = {}
    for case in _layer_cases(data):
        for name in (_LAYERS, f"{_LAYERS}, {case.name.split(',')[0]}"):
            layers.setdefault(name, []).append(case)
    by_set |= {
        name: {method: metrics(group, method) for method in (SOURCE, ROOFLINE)}
        for name, group in sorted(layers.items())
    }
    return SuiteReport("kernels_vector", (*cases, *backward, *layers[_LAYERS]), by_set, notes=_NOTES)


def _layer_cases(data: Path) -> Iterator[Case]:
    """Liger's layers, kernel by kernel, as in a benchmark that power does not limit."""
    graphs: dict[str, Graph | None] = {}
    alone = MatrixModel(matrix.calibration().of_single_kernels())
    for time in liger.times(data):
        if time.seconds < _SHORTEST_SECONDS:
            continue
        title = f"{time.kernel}, {dict(sorted(time.sizes.items()))}"
        graph = graphs[title] if title in graphs else graphs.setdefault(title, liger.graph_of(time))
        if graph is None:
            continue
        target = device(time.device_id)
        wanted = [op for op in operators(graph) if time.phase in ("full", op.phase.value)]
        models = [alone if isinstance(each, MatrixModel) else each for each in operator_models(target)]
        priced = price(Listing(tuple(wanted)), target, models)
        least = float(np.maximum(priced.computing, priced.moving).sum())
        predicted = {SOURCE: float(priced.seconds.sum()), ROOFLINE: least}
        yield Case(f"{title}, {time.phase}", time.device_id, time.seconds, predicted)


def _by_method(cases: list[Case]) -> dict[str, Metrics]:
    return {method: metrics(cases, method) for method in (SHAPE, GPU, STRICT, ROOFLINE)}


def _cases(measurements: Measurements, predictions: Predictions) -> tuple[Case, ...]:
    floor, limit = floors(measurements), np.zeros(len(measurements))
    for name in measurements.devices:
        here = measurements.device_ids == name
        limit[here] = roofline_seconds(measurements.table.rows(here), device(name))
    limit = observed(limit, floor, _HALF_BEFORE)
    return tuple(
        Case(
            name=f"{_NAMES.get(measurements.labels[row], 'elementwise')} on {measurements.device_ids[row]}",
            group=str(measurements.device_ids[row]),
            measured=float(measurements.seconds[row]),
            predicted={
                SHAPE: float(predictions.shape_unseen[row]),
                GPU: float(predictions.device_unseen[row]),
                STRICT: float(predictions.device_strict[row]),
                ROOFLINE: float(limit[row]),
            },
        )
        for row in range(len(measurements))
    )


def _backward_cases(forward: Measurements, backward: Measurements, cycles: float) -> tuple[Case, ...]:
    """Backward operators as predicted by a fit to the forward ones of the other GPUs."""
    (name,) = backward.devices
    target = device(name)
    learned = fit([part for part in samples(forward) if part.device.id != name], cycles, correct=False)
    kernels = stream_seconds(
        streams(backward.table, target), target, learned.share(target), learned.constants
    )
    predicted: Floats = kernels + _BACKWARD_OFFSET_SECONDS
    limit: Floats = roofline_seconds(backward.table, target) + _BACKWARD_OFFSET_SECONDS
    return tuple(
        Case(
            name=f"{backward.labels[row]} backward on {name}",
            group=name,
            measured=float(backward.seconds[row]),
            predicted={GPU: float(predicted[row]), ROOFLINE: float(limit[row])},
        )
        for row in range(len(backward))
    )
