"""Measured timm steps beside what the operator models say of their classes of kernels."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibration.datasets.timm_benchmark import TimmStep
from calibration.datasets.timm_models import families
from foretrain.facts.devices import Device, device
from foretrain.prediction.operators.host import host_model
from foretrain.prediction.operators.mixed_precision import power_factors
from foretrain.prediction.operators.pricing import (
    Flags,
    Floats,
    PricedOps,
    kernel_class,
    operator_models,
    price,
    roofline_seconds,
    table,
)
from foretrain.workloads.graph import Graph, Role
from foretrain.workloads.rules import operators

HARNESS = "updating one tensor at a time"
_TENSOR_KERNELS = 6
"""timm's loop under PyTorch 1.12, for every tensor: its gradient is zeroed, added to, applied by four."""
_TENSOR_BYTES = 28
"""Traffic of that beyond a multi-tensor update, a value: 4 to zero, 12 to add, 12 for Nesterov's sum."""


@dataclass(frozen=True, eq=False)
class ClassTimes:
    """Rows are steps, columns are classes of kernels: seconds on the device as the models say, uncorrected.

    `least` are the same works at the roofline; `launches` how many operators the host starts, and
    `host_seconds` how long that takes it.
    """

    steps: tuple[TimmStep, ...]
    classes: tuple[str, ...]
    seconds: Floats
    least: Floats
    launches: Floats
    host_seconds: Floats

    @property
    def measured(self) -> Floats:
        """Seconds measured."""
        return np.array([step.seconds for step in self.steps])

    @property
    def families(self) -> NDArray[np.str_]:
        """What the split is by."""
        return np.array([step.family for step in self.steps], str)

    @property
    def device_ids(self) -> NDArray[np.str_]:
        """Where each step ran."""
        return np.array([step.device_id for step in self.steps], str)

    def where(self, chosen: Flags) -> ClassTimes:
        """Only some steps."""
        steps = tuple(step for step, keep in zip(self.steps, chosen, strict=True) if keep)
        return replace(
            self,
            steps=steps,
            seconds=self.seconds[chosen],
            least=self.least[chosen],
            launches=self.launches[chosen],
            host_seconds=self.host_seconds[chosen],
        )


def class_times(
    steps: Sequence[TimmStep], graphs: Path, fitted_on: Collection[str] = (), joules_per_flop: float = 0.0
) -> ClassTimes:
    """Price all steps whose graphs can be traced; `graphs` keeps those that were.

    On boards other than those of the fit, products run at the pace that their power allows.
    """
    known = dict(families(dict.fromkeys(step.wanted for step in steps), graphs))
    traced = tuple(step for step in steps if step.wanted in known)
    rows, least, launches, launching = [], [], [], []
    for step in traced:
        graph, target = known[step.wanted].at({"batch": step.batch}), device(step.device_id)
        priced = price(operators(graph), target, operator_models(target))
        if fitted_on:
            paced = power_factors(priced.listing, target, fitted_on, joules_per_flop)
            priced = replace(priced, seconds=priced.seconds * paced)
        seconds, floors = _by_class(priced, target)
        if not step.wanted.forward_only:
            seconds[HARNESS] = floors[HARNESS] = _harness_seconds(graph, target)
        rows.append(seconds)
        least.append(floors)
        launches.append(sum(op.work.kernels > 0 for op in priced.ops))
        launching.append(host_model(target).seconds(priced.listing, compiled=False).sum())
    classes = tuple(sorted({name for row in rows for name in row}))
    return ClassTimes(
        traced,
        classes,
        _matrix(rows, classes),
        _matrix(least, classes),
        np.array(launches, float),
        np.array(launching, float),
    )


def _by_class(priced: PricedOps, target: Device) -> tuple[dict[str, float], dict[str, float]]:
    works = {id(op.work): op.work for op in priced.ops if op.work.kernels}
    floors = dict(zip(works, roofline_seconds(table(list(works.values())), target), strict=True))
    names = {key: kernel_class(work) for key, work in works.items()}
    seconds: dict[str, float] = {}
    least: dict[str, float] = {}
    for op, time in zip(priced.ops, priced.seconds, strict=True):
        if op.work.kernels:
            name = names[id(op.work)]
            seconds[name] = seconds.get(name, 0.0) + float(time)
            least[name] = least.get(name, 0.0) + float(floors[id(op.work)])
    return seconds, least


def _harness_seconds(graph: Graph, target: Device) -> float:
    from foretrain.prediction.operators import streaming

    known = streaming.calibration()
    start = known.constants.start_cycles / target.sheet.number("boost_clock_hertz")
    tensors = sum(buffer.role is Role.PARAMETER for buffer in graph.buffers)
    moving = graph.parameters * _TENSOR_BYTES / (target.memory_bytes_per_second * known.share(target))
    return _TENSOR_KERNELS * tensors * start + moving


def _matrix(rows: Sequence[dict[str, float]], classes: Sequence[str]) -> Floats:
    return np.array([[row.get(name, 0.0) for name in classes] for row in rows])
