"""Matrix kernels: products (FP32, half precision, FP8) of five data sets, TF32, attention, recurrent layers.

Every measurement is predicted twice: by a fit without its shape on any GPU, and by a fit without its GPU. A
GPU left out is predicted from its sheet and published stream bandwidths: its share of peak follows from its
power and from similar GPUs, and no kernel correction is used. What NeuSight's stopwatch adds (the shortest
times of a host) is a property of the harness and added to every prediction, the roofline's too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from calibration.datasets.measurements import Measurements
from calibration.kernels.products import Predictions
from calibration.kernels.products_fit import least_seconds

from calibration.datasets import deepbench, neusight
from calibration.kernels import attention, products, recurrent, tf32
from foretrain.facts.devices import device
from foretrain.prediction.operators.matrix import UNITS, MatrixModel, calibration
from foretrain.prediction.operators.pricing import Floats, roofline_seconds
from foretrain.workloads.ops import Direction
from validation.report import Case, Metrics, SuiteReport, metrics

SHAPE, GPU, ROOFLINE = "foretrain, shape unseen", "foretrain, GPU unseen", "roofline"
SOURCE = "foretrain, source unseen"
INSIDE = "foretrain, GPU and most shapes seen"
_LONG = 16_384
_LARGE_FLOP = 1e11
"""A product of training: a batch of 8,192 tokens and a layer of 2,560 x 2,560."""
_NOTES = (
    "NeuSight itself: 20-26 % on products of GPUs it was trained on, 14 % on its own unseen set. A roofline "
    "with three constants fitted on each GPU itself: BF16 12 % (H100), 17 % (B200), 22 % (A100), 34 % "
    "(L40S).",
    "aiconfigurator's kernels were timed in a loop over the same operands: on the L40S, which has 96 MB of "
    "cache, small products beat the memory roofline, which foretrain never does.",
    "aiconfigurator's FP8 times include casting the activations (another kernel of 4-10 us and 5-9 bytes an "
    "element, fitted as a part of the harness); the model predicts the product, its casts are priced apart.",
    "estimate-train-time ran short bursts on an idle GPU: its share of peak is its own, and only its "
    "products of activations are fitted to. vidur's projections are sustained, as training is.",
    "aiter's products are the fastest of thousands of kernels; the infinity cache holds many operands.",
    "The P4's linear layers of NeuSight's two splits ran different libraries, up to four times apart.",
    "The form of the model was chosen with the errors on these GPUs in view, so 'GPU unseen' is slightly "
    "optimistic; the start of a kernel is the median of all four GPUs of aiconfigurator, the one left out "
    "included.",
    "Recurrent layers of a GPU left out still use the share of peak its plain products showed.",
    "FP8 of 100 GFLOP and more: the B200 left out comes out 20-25 % too slow, the L40S up to 40 % too fast. "
    "Tiles over two SMs and power are the likely reasons; neither was tested.",
    "TF32 convolutions: first layers run on FP32 lanes where these are faster, on Ada and GA102 20-30 % too "
    "fast here.",
    "Attention, GPU left out: the kernels of one compute capability say little about another's. GB200 and "
    "GB300 come out 15 % too fast and too slow by each other: Blackwell Ultra computes exponentials twice as "
    "fast (NVIDIA), which the model does not know. Where version 3 is left out, cuDNN's kernel stands in.",
    "Products inside one layer: other timings, on GPUs the fit saw; many of their shapes are in the fit too.",
)


def run(data: Path) -> SuiteReport:
    """Fit, leave out, compare."""
    groups: dict[str, list[Case]] = {}
    judged: dict[str, list[Case]] = {}  # a part of the cases, or methods of its own
    known = products.corpus(data)
    for name in UNITS:
        by_shape = products.shape_unseen(known, name)
        by_device = products.device_unseen(known, name)
        cases = _product_cases(by_shape, by_device)
        _add(groups, cases)
        if name == "fp8":
            _add(judged, _large(cases, by_shape))
    _add_attention(groups, data)
    layers = deepbench.read_recurrent(data)
    steps = recurrent.cross_validate(layers)
    _add(groups, _cases("recurrent", layers, steps.shape_unseen, steps.device_unseen))
    _add(judged, [*_tf32_cases(data), *_source_cases(data)])
    by_set = {name: _by_method(group) for name, group in sorted((groups | judged).items())}
    inside = _layer_cases(data)
    for name in sorted({case.name for case in inside}):
        chosen = [case for case in inside if case.name == name]
        by_set[name] = {INSIDE: metrics(chosen, INSIDE), ROOFLINE: metrics(chosen, ROOFLINE)}
    cases = [case for name, group in groups.items() if " on " not in name for case in group]
    return SuiteReport("kernels_matrix", (*cases, *inside), by_set, notes=_NOTES)


def _add(groups: dict[str, list[Case]], cases: Sequence[Case]) -> None:
    for case in cases:
        groups.setdefault(case.name, []).append(case)
        groups.setdefault(f"{case.name} on {case.group}", []).append(case)


def _large(cases: Sequence[Case], parts: Sequence[Predictions]) -> list[Case]:
    """Products of the size of training by themselves."""
    flop = np.concatenate([part.sample.work.flop for part in parts])
    chosen = [case for case, each in zip(cases, flop, strict=True) if each >= _LARGE_FLOP]
    return [replace(case, name="FP8 products of 100 GFLOP and more") for case in chosen]


def _tf32_cases(data: Path) -> list[Case]:
    """KernelBench's convolutions in TF32, by a fit without the GPU's."""
    measured = tf32.read(data)
    predicted = tf32.device_unseen(measured, calibration().units["tensor"])
    limit = np.zeros(len(measured))
    for name in measured.devices:
        here = measured.device_ids == name
        limit[here] = roofline_seconds(measured.table.rows(here), device(name))
    return [
        _case(
            "TF32 convolutions kernelbench",
            str(measured.device_ids[row]),
            measured.seconds[row],
            {GPU: predicted[row], ROOFLINE: limit[row]},
        )
        for row in range(len(measured))
    ]


def _source_cases(data: Path) -> list[Case]:
    """Attention by a fit without its source, where another source measured the same generation of kernel."""
    cases = []
    for part, predicted in attention.source_unseen(attention.corpus(data)):
        measured = part.measurements
        lengths = np.maximum(measured.table.dim("queries"), measured.table.dim("keys"))
        for row, work in enumerate(measured.works):
            direction = "forward" if work.direction is Direction.FORWARD else "backward"
            by_method = {SOURCE: predicted[row]}
            where = str(measured.device_ids[row])
            name = f"attention {direction}, source left out"
            cases.append(_case(name, where, measured.seconds[row], by_method))
            if lengths[row] >= _LONG:
                name = f"attention {direction} on 16k tokens and more, source left out"
                cases.append(_case(name, where, measured.seconds[row], by_method))
    return cases


def _add_attention(groups: dict[str, list[Case]], data: Path) -> None:
    """Attention by kernel generation, direction and GPU, and apart from 16k tokens on.

    The GPU left out may share its compute capability with others. Version 3 was measured on the H200 alone:
    without it another kernel stands in.
    """
    parts = attention.corpus(data)
    for part, out in zip(parts, attention.cross_validate(parts), strict=True):
        measured, kernel = part.measurements, part.generation + (" FP8" if part.is_eight_bit else "")
        lengths = np.maximum(measured.table.dim("queries"), measured.table.dim("keys"))
        cases = _cases("attention", measured, out.shape_unseen, out.device_unseen)
        for case, work, length in zip(cases, measured.works, lengths, strict=True):
            direction = "forward" if work.direction is Direction.FORWARD else "backward"
            _add(groups, [replace(case, name=f"attention {direction}")])
            groups.setdefault(f"attention {kernel}, {direction} on {case.group}", []).append(case)
            if length >= _LONG:
                groups.setdefault(f"attention {direction} on 16k tokens and more", []).append(case)


def _by_method(cases: list[Case]) -> dict[str, Metrics]:
    return {method: metrics(cases, method) for method in cases[0].predicted}


def _product_cases(by_shape: list[Predictions], by_device: list[Predictions]) -> list[Case]:
    cases = []
    for shape, gpu in zip(by_shape, by_device, strict=True):
        part = shape.sample
        kind = "FP8 products" if part.unit == "fp8" else "products"
        limit = part.show(least_seconds(part))
        for row in range(len(part.seconds)):
            by_method = {SHAPE: shape.seconds[row], GPU: gpu.seconds[row], ROOFLINE: limit[row]}
            cases.append(_case(f"{kind} {part.source}", part.device.id, part.seconds[row], by_method))
    return cases


def _cases(kind: str, measurements: Measurements, by_shape: Floats, by_device: Floats) -> list[Case]:
    limit = np.zeros(len(measurements))
    for name in measurements.devices:
        here = measurements.device_ids == name
        limit[here] = roofline_seconds(measurements.table.rows(here), device(name))
    return [
        _case(
            f"{kind} {measurements.source}",
            str(measurements.device_ids[row]),
            measurements.seconds[row],
            {SHAPE: by_shape[row], GPU: by_device[row], ROOFLINE: limit[row]},
        )
        for row in range(len(measurements))
    ]


def _layer_cases(data: Path) -> list[Case]:
    """Products inside a transformer layer, forward and backward, by the shipped calibration."""
    once = neusight.read_layer_products(data)
    first, second = neusight.read_layer_product_gradients(data)
    cases = []
    for name, parts in (("inside a layer, forward", (once,)), ("inside a layer, backward", (first, second))):
        predicted, limit = (np.zeros(len(parts[0])) for _ in range(2))
        for part in parts:
            for device_id in part.devices:
                here = part.device_ids == device_id
                works, target = part.table.rows(here), device(device_id)
                predicted[here] += MatrixModel().seconds(works, target)
                limit[here] += roofline_seconds(works, target)
        for row in range(len(predicted)):
            measured, where = parts[0].seconds[row], str(parts[0].device_ids[row])
            cases.append(_case(name, where, measured, {INSIDE: predicted[row], ROOFLINE: limit[row]}))
    return cases


def _case(name: str, group: str, measured: float, predicted: dict[str, float]) -> Case:
    return Case(name, group, float(measured), {method: float(value) for method, value in predicted.items()})
