"""PROFET's steps with foretrain's price of each: its composition, also with the GPU's family held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from calibration.datasets.profet import DEVICES, ProfetStep, read
from calibration.steps.generation_speed import Slowness
from calibration.steps.keras_harness import (
    Composition,
    HarnessStep,
    HarnessTable,
    classes,
    composition,
    harness_table,
)
from foretrain.errors import MissingData
from foretrain.facts.devices import Device, device, devices
from foretrain.prediction.operators import convolution, matrix
from foretrain.prediction.operators.convolution import convolution_seconds, least_seconds, lower
from foretrain.prediction.operators.matrix import MatrixModel
from foretrain.prediction.operators.pricing import (
    Confidence,
    Floats,
    OperatorModel,
    RooflineModel,
    WorkTable,
    operator_models,
    price,
)
from foretrain.prediction.operators.streaming import StreamingModel, nearest_share
from foretrain.workloads.ops import Kind, Op
from foretrain.workloads.rules import operators
from foretrain.workloads.workload import graph_at

GPUS = tuple(sorted(DEVICES.values()))
REGULARISED = frozenset({"ResNet18", "ResNet34", "ResNet50"})
"""The networks PROFET defines with an L2 loss on the weights of convolutions."""
OTHER_MODELS = ("roofline", "per-layer")
_CHANNELS, _ITEM_BYTES = 3, 4


class HeldOutConvolutionModel(OperatorModel):
    """Convolutions at the share of peak that devices of other families nearest to this one achieve."""

    name: ClassVar[str] = "convolution, family forgotten"
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.CONVOLUTION})

    def seconds(self, works: WorkTable, device: Device) -> Floats:
        """Device seconds of each work."""
        known, work = convolution.calibration(), lower(works, device)
        others = [
            (name, share)
            for name, share in known.share_of_peak.items()
            if devices()[name].family != device.family
        ]
        shares = np.full(len(work), nearest_share(device, others))
        bandwidth = matrix.calibration().without(device).memory.share(device)
        times = convolution_seconds(work, device, known.constants, shares, bandwidth)
        return np.maximum(times, least_seconds(work, device))

    def confidence(self, kind: Kind, device: Device) -> Confidence:
        """That of unmeasured devices."""
        del kind, device
        return convolution.calibration().residuals.confidence(False, convolution.FILE)


def models_without_family(target: Device) -> tuple[OperatorModel, ...]:
    """The models of a convolutional network for a device whose family is forgotten."""
    known = matrix.calibration().without(target)
    return (MatrixModel(known), HeldOutConvolutionModel(), StreamingModel(known.memory), RooflineModel())


@dataclass(frozen=True)
class PricedStep:
    """A measured step and what its operators cost.

    `held_out` is the composition had no device of the GPU's family been measured; `others` are the seconds by
    models of the literature.
    """

    step: ProfetStep
    composition: Composition
    held_out: Composition
    others: Mapping[str, float]


def priced_steps(data: Path) -> list[PricedStep]:
    """All of them; graphs are traced once and kept."""
    by_workload: dict[tuple[str, int, int], list[ProfetStep]] = {}
    for step in read(data):
        by_workload.setdefault((step.model, step.image_size, step.batch), []).append(step)
    return [item for same_workload in by_workload.values() for item in _priced(same_workload)]


def _priced(same_workload: Sequence[ProfetStep]) -> list[PricedStep]:
    first = same_workload[0]
    graph = graph_at(first.workload, first.batch)
    ops = operators(graph)
    sorted_ops = classes(ops)
    size = first.batch * _CHANNELS * first.image_size**2 * _ITEM_BYTES
    steps = []
    for step in same_workload:
        target = device(step.device_id)
        known, held_out = (
            composition(graph, price(ops, target, models), sorted_ops, target, size)
            for models in (operator_models(target), models_without_family(target))
        )
        steps.append(PricedStep(step, known, held_out, _by_others(ops, target)))
    return steps


def _by_others(ops: Sequence[Op], target: Device) -> dict[str, float]:
    """Seconds by the models of the literature, where they know this device."""
    seconds = {}
    for name in OTHER_MODELS:
        with suppress(MissingData):
            seconds[name] = float(price(ops, target, operator_models(target, name)).seconds.sum())
    return seconds


def table(
    steps: Sequence[PricedStep], slowness: Mapping[str, Slowness], held_out_gpu: str = ""
) -> HarnessTable:
    """The steps as the harness sees them, with the slowness of each GPU; one may be held out."""
    return harness_table(
        [
            HarnessStep(
                item.held_out if item.step.device_id == held_out_gpu else item.composition,
                slowness[item.step.device_id],
                device(item.step.device_id).sheet.number("boost_clock_hertz"),
                GPUS.index(item.step.device_id),
                item.step.model in REGULARISED,
            )
            for item in steps
        ]
    )


def measured(steps: Sequence[PricedStep]) -> Floats:
    """Seconds measured."""
    return np.array([item.step.seconds for item in steps])
