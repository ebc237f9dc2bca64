"""What DataParallel's interpreter spends on each parameter and device, from steps on 2 to 4 GPUs.

The time on several GPUs beyond that on one, without the predicted copies and launches, for each device and
parameter. The median, for one machine slowed down with four GPUs; models whose copies take long are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from calibration.datasets import ryujaehun
from calibration.datasets.ryujaehun import SmallStep
from foretrain.facts.devices import device
from foretrain.facts.hardware import hardware
from foretrain.prediction.collectives.network import network_of
from foretrain.prediction.cost_models import OperatorCostModel
from foretrain.prediction.step.parallel import StepEnvironment, predict_step
from foretrain.prediction.strategies.program import parameter_bytes
from foretrain.prediction.strategies.single_process import FILE as FILE
from foretrain.prediction.strategies.single_process import parameters, replicating_seconds
from foretrain.prediction.strategies.strategy import layout_of
from foretrain.workloads.executed import ExecutedGraph
from foretrain.workloads.graph import Graph
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.workload import graph_of, workload_of

_MOST_BYTES = 3e8


@dataclass(frozen=True, slots=True)
class Replicated:
    """A step on several GPUs, measured and predicted without replicating; and the same on one GPU."""

    step: SmallStep
    parameters: int
    parameter_bytes: float
    predicted_seconds: float
    single_seconds: float
    single_predicted_seconds: float

    @property
    def seconds_per_parameter(self) -> float:
        """What is left for each parameter and device."""
        beyond = (
            self.step.seconds - self.single_seconds - (self.predicted_seconds - self.single_predicted_seconds)
        )
        return beyond / (self.step.devices * self.parameters)


def replicated(data: Path) -> list[Replicated]:
    """All training steps on several GPUs whose single one is known."""
    steps = [step for step in ryujaehun.read_all(data) if not step.forward_only]
    single = {(step.host, step.device_id, step.model): step for step in steps if step.devices == 1}
    runs = []
    for step in steps:
        alone = single.get((step.host, step.device_id, step.model))
        if step.devices == 1 or alone is None:
            continue
        graph = _graph(step.model, step.precision)
        runs.append(
            Replicated(
                step,
                parameters(graph),
                parameter_bytes(graph),
                _predicted_seconds(step, graph) - replicating_seconds(graph, step.devices),
                alone.seconds,
                _predicted_seconds(alone, graph),
            )
        )
    return runs


@cache
def _graph(model: str, precision: str) -> Graph:
    request = WorkloadRequest(model, batch=ryujaehun.BATCH, precision=precision, no_optimizer=True)
    return graph_of(workload_of(request))


def _predicted_seconds(step: SmallStep, graph: Graph) -> float:
    target = device(step.device_id)
    network = network_of(hardware(f"{step.device_id}:{step.devices}"))
    layout = layout_of("dp" if step.devices > 1 else "ddp", step.devices, step.devices)
    return predict_step(
        ExecutedGraph(graph), layout, 1, StepEnvironment(target, network, OperatorCostModel())
    ).seconds


def fit(steps: Sequence[Replicated]) -> float:
    """Seconds for each parameter and device."""
    chosen = [step.seconds_per_parameter for step in steps if step.parameter_bytes < _MOST_BYTES]
    return float(np.median(chosen))


def calibrate(data: Path) -> Mapping[str, Any]:
    """The content of the calibration file."""
    steps = replicated(data)
    hosts = sorted({step.step.host for step in steps})
    return {
        "source": f"calibrations/{FILE}",
        "data": [{"source": "ryujaehun", "steps": len(steps)}],
        "seconds_per_parameter": fit(steps),
        "machines": {host: fit([step for step in steps if step.step.host == host]) for host in hosts},
    }
