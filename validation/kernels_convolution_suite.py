"""Convolutions: NeuSight (3x3, FP32), DeepBench (all directions, FP32 and FP16), Justus (TF1, forward).

NeuSight and DeepBench are predicted by fits without their shape and without their family of GPUs. Justus was
not fitted to at all: its GPUs are predicted by the shares of DeepBench's and NeuSight's, after subtracting
the time of the smallest layers on each device, which is TensorFlow's.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from calibration.datasets.measurements import Measurements
from calibration.kernels.convolution import ConvolutionFit, cross_validate, fitted_on, read

from calibration.datasets import aiconfigurator, justus
from foretrain.facts.devices import device
from foretrain.prediction.operators import streaming
from foretrain.prediction.operators.convolution import convolution_seconds, lower
from foretrain.prediction.operators.pricing import Floats, roofline_seconds
from foretrain.prediction.operators.streaming import nearest_share
from validation.report import Case, SuiteReport, metrics

SHAPE, GPU, ROOFLINE = "foretrain, shape unseen", "foretrain, GPU unseen", "roofline"
_SMALLEST = 0.005
_NOTES = (
    "3x3 convolutions of stride 1 in FP32 run up to 2.4 times faster than the FLOP roofline: Winograd.",
    "DeepBench times the fastest algorithm found by search; NeuSight what PyTorch's heuristic picks.",
    "Justus times a whole TensorFlow 1 layer (layout changes, bias, activation) and nothing is fitted to "
    "it: the model predicts the convolution alone, so it is too low.",
    "Gradients of inputs with up to 3 channels are left out: they belong to first layers, which need none.",
)


def run(data: Path) -> SuiteReport:
    """Fit, leave out, compare."""
    data_sets = read(data)
    cycles = aiconfigurator.start_cycles(data)
    cases: list[Case] = []
    for one, held_out in zip(data_sets, cross_validate(data_sets, cycles), strict=True):
        predicted = {SHAPE: held_out.shape_unseen, GPU: held_out.device_unseen, ROOFLINE: _roofline(one)}
        cases += _cases(one, predicted)
    cases += _justus(justus.read_convolutions(data), fitted_on(data_sets, cycles))
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.name, []).append(case)
        groups.setdefault(f"{case.name.split(',')[0]} on {case.group}", []).append(case)
    by_set = {
        name: {method: metrics(group, method) for method in group[0].predicted}
        for name, group in sorted(groups.items())
    }
    return SuiteReport("kernels_convolution", tuple(cases), by_set, notes=_NOTES)


def _roofline(measurements: Measurements) -> Floats:
    limit = np.zeros(len(measurements))
    for name in measurements.devices:
        here = measurements.device_ids == name
        limit[here] = roofline_seconds(measurements.table.rows(here), device(name))
    return limit


def _cases(measurements: Measurements, predicted: dict[str, Floats]) -> list[Case]:
    return [
        Case(
            name=f"{measurements.source}, {measurements.labels[row]}, {measurements.works[row].dtype}",
            group=str(measurements.device_ids[row]),
            measured=float(measurements.seconds[row]),
            predicted={method: float(values[row]) for method, values in predicted.items()},
        )
        for row in range(len(measurements))
    ]


def _justus(measurements: Measurements, learned: ConvolutionFit) -> list[Case]:
    predicted, limit = np.zeros(len(measurements)), _roofline(measurements)
    for name in measurements.devices:
        here, target = measurements.device_ids == name, device(name)
        share = nearest_share(target, learned.by_device().items())
        work = lower(measurements.table.rows(here), target)
        bandwidth = streaming.calibration().share(target)
        shares = np.full(len(work), share)
        kernel = convolution_seconds(work, target, learned.constants, shares, bandwidth)
        overhead = float(np.quantile(measurements.seconds[here], _SMALLEST))
        predicted[here], limit[here] = kernel + overhead, limit[here] + overhead
    return _cases(measurements, {GPU: predicted, ROOFLINE: limit})
