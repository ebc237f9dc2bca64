"""PROFET's steps with what foretrain says of each: what it is made of, and its roofline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foretrain.errors import MissingData
from foretrain.facts.devices import Device, device
from foretrain.learning.measurements.profet_steps import DEVICES, ProfetStep, read
from foretrain.learning.steps.composition import Composition, classes, composition
from foretrain.learning.steps.forgotten_models import forgotten
from foretrain.learning.steps.generation_speed import Slowness
from foretrain.learning.steps.keras_harness import HarnessStep, HarnessTable, harness_table
from foretrain.prediction.operators.catalogue import operator_models
from foretrain.prediction.operators.listing import Floats
from foretrain.prediction.operators.pricing import price
from foretrain.workloads.ops import Op
from foretrain.workloads.rules import operators
from foretrain.workloads.workload import graph_at

GPUS = tuple(sorted(DEVICES.values()))
REGULARISED = frozenset({"ResNet18", "ResNet34", "ResNet50"})
"""The networks PROFET defines with an L2 loss on the weights of convolutions."""
OTHER_MODELS = ("roofline", "per-layer")
_CHANNELS, _ITEM_BYTES = 3, 4


@dataclass(frozen=True)
class PricedStep:
    """A measured step and what its operators cost.

    `unaware` is the composition had no device of the GPU's family been measured; `others` are the seconds by
    models of the literature.
    """

    step: ProfetStep
    composition: Composition
    unaware: Composition
    others: Mapping[str, float]


def priced_steps(data: Path) -> list[PricedStep]:
    """All of them; graphs are traced once and kept."""
    by_workload: dict[tuple[str, int, int], list[ProfetStep]] = {}
    for step in read(data):
        by_workload.setdefault((step.model, step.image_size, step.batch), []).append(step)
    return [item for alike in by_workload.values() for item in _priced(alike)]


def _priced(alike: Sequence[ProfetStep]) -> list[PricedStep]:
    first = alike[0]
    graph = graph_at(first.workload, first.batch)
    ops = operators(graph)
    sorted_ops = classes(ops)
    size = first.batch * _CHANNELS * first.image_size**2 * _ITEM_BYTES
    found = []
    for step in alike:
        target = device(step.device_id)
        known, unaware = (
            composition(graph, price(ops, target, models), sorted_ops, target, size)
            for models in (operator_models(target), forgotten(target))
        )
        found.append(PricedStep(step, known, unaware, _by_others(ops, target)))
    return found


def _by_others(ops: Sequence[Op], target: Device) -> dict[str, float]:
    """Seconds by the models of the literature, where they can tell this device."""
    found = {}
    for name in OTHER_MODELS:
        with suppress(MissingData):
            found[name] = float(price(ops, target, operator_models(target, name)).seconds.sum())
    return found


def table(
    steps: Sequence[PricedStep], slowness: Mapping[str, Slowness], forgotten_gpu: str = ""
) -> HarnessTable:
    """The steps as the harness sees them, with the slowness of each GPU; one may be forgotten."""
    return harness_table(
        [
            HarnessStep(
                item.unaware if item.step.device_id == forgotten_gpu else item.composition,
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
