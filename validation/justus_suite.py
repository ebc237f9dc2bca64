"""Justus: dense and convolution layers in TensorFlow 1, FP32, forward, on K40 to V100, timed one by one.

Nothing is fitted to them but one number a device: the time of the smallest layers, which is TensorFlow's. The
GPUs' speeds are those the operator models learned elsewhere; for Kepler, which they have not seen, the suite
predicts once as they are, and once with the slowness of the *other* Kepler board of the same data.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from calibration.datasets.measurements import Measurements
from calibration.steps.generation_speed import GenerationSpeed, generation_speed

from calibration.datasets import justus
from foretrain.facts.devices import Device, device
from foretrain.prediction.operators.pricing import Floats, operator_models, price, roofline_seconds
from foretrain.workloads.graph import Phase
from foretrain.workloads.ops import Op, Work
from validation.report import Case, Metrics, SuiteReport, metrics
from validation.splitting import by_group, intervals, worst

HERE, AS_PRICED, ROOFLINE = "foretrain", "foretrain, without the generation's slowness", "roofline"
_SMALLEST = 0.005
_NOTES = (
    "Every layer runs alone in a TensorFlow 1 session, bias and activation included: most of its time is "
    "not the product's, and the model predicts the product alone, so it is too low for small layers. The "
    "times of the smallest layers of each device are added to all methods.",
    "Convolutions are in the suite kernels_convolution too, with the shares of a fit that saw no Justus.",
)


def run(data: Path) -> SuiteReport:
    """Price every layer on its device."""
    speed = generation_speed(data)
    cases: list[Case] = []
    by_set: dict[str, dict[str, Metrics]] = {}
    for name, measurements in (
        ("convolution", justus.read_convolutions(data)),
        ("dense", justus.read_dense(data)),
    ):
        of_kind = _cases(name, measurements, speed)
        by_set[f"{name} forward, GPU unseen"] = _metrics(of_kind)
        for gpu, group in by_group(of_kind).items():
            by_set[f"{name} forward on {gpu}"] = _metrics(group)
        cases += of_kind
    notes = (*_NOTES, f"Worst: {worst(cases, HERE, _why)}.")
    return SuiteReport("justus", tuple(cases), by_set, notes=notes)


def _cases(name: str, measurements: Measurements, speed: GenerationSpeed) -> list[Case]:
    predicted = {method: np.zeros(len(measurements)) for method in (HERE, AS_PRICED, ROOFLINE)}
    for gpu in measurements.devices:
        here, target = measurements.device_ids == gpu, device(gpu)
        layers = measurements.where(here)
        floor = float(np.quantile(layers.seconds, _SMALLEST))
        priced = _price(layers.works, target)
        predicted[AS_PRICED][here] = floor + priced
        slow = speed.of(target, without=gpu)
        predicted[HERE][here] = floor + priced * (slow.convolutions if name == "convolution" else slow.rest)
        predicted[ROOFLINE][here] = floor + roofline_seconds(layers.table, target)
    groups = measurements.device_ids.tolist()
    bounds = intervals(groups, measurements.seconds, predicted[HERE])
    return [
        Case(
            f"{name} {_sizes(measurements.works[row])} on {groups[row]}",
            groups[row],
            float(measurements.seconds[row]),
            {method: float(values[row]) for method, values in predicted.items()},
            bounds[row],
        )
        for row in range(len(measurements))
    ]


def _why(case: Case) -> str:
    if case.predicted[HERE] < case.measured:
        return "what TensorFlow does around the product"
    return "an algorithm faster than those priced"


def _price(works: Sequence[Work], target: Device) -> Floats:
    ops = [Op(work, index, "", Phase.FORWARD, "", False) for index, work in enumerate(works)]
    return price(ops, target, operator_models(target)).seconds


def _sizes(work: Work) -> str:
    names = ("batch", "m", "n", "k", "in_channels", "out_channels", "height", "kernel_height")
    return "x".join(str(work.dims[name]) for name in names if name in work.dims)


def _metrics(cases: Sequence[Case]) -> dict[str, Metrics]:
    return {method: metrics(cases, method, method == HERE) for method in cases[0].predicted}
