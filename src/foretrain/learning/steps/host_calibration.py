"""How long a host takes to launch: fitted on small steps of torchvision models, on machines of several kinds.

    step = launches and kernels in order (see `launching`) + a constant + parameters · bookkeeping

The last two are the loop's own: copying the batch to the device, and zeroing and adding up gradients one
parameter at a time. Every machine has its own speed and its own error of the kernels' times; what an operator
costs relative to another is the same everywhere. The machine in the middle is what is shipped, the spread
between machines is the interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from foretrain.facts.devices import device
from foretrain.learning.kernels.least_squares import minimise
from foretrain.learning.measurements import ryujaehun_steps
from foretrain.learning.measurements.ryujaehun_steps import SmallStep
from foretrain.prediction.launching import ends_in_order
from foretrain.prediction.operators.catalogue import operator_models
from foretrain.prediction.operators.pricing import price
from foretrain.prediction.operators.table import Floats
from foretrain.workloads.graph import Graph, Phase, Role
from foretrain.workloads.requests import WorkloadRequest, workload_of
from foretrain.workloads.rules import operators
from foretrain.workloads.workload import graph_of

FILE = "host.json"
_START = {"forward": 2e-5, "backward": 2e-5, "view": 4e-6, "parameter": 5e-5}
"""Where the search starts, in seconds."""


@dataclass(frozen=True, eq=False)
class Launches:
    """One step as the host sees it: which operators launch in which phase, which only make views."""

    step: SmallStep
    forward: Floats
    backward: Floats
    view: Floats
    device_seconds: Floats
    parameters: int


def calibrate(data: Path) -> Mapping[str, Any]:
    """Fit the host model on all machines."""
    found = [_launches(step) for step in ryujaehun_steps.read(data)]
    machines = sorted({row.step.host for row in found})
    start = np.log(np.array([*_START.values(), *([1.0] * len(machines) + [1e-3] * len(machines))]))

    def errors(x: Floats) -> Floats:
        return np.array([np.log(_told(row, x, machines) / row.step.seconds) for row in found])

    best = minimise(
        lambda x: np.append(errors(x), _pull(x, machines)), np.append(start, np.zeros(len(machines)))
    )
    left = errors(best)
    speeds = np.exp(_speeds(best, machines))
    middle = float(np.median(speeds))
    cost = {name: float(np.exp(value)) * middle for name, value in zip(_START, best, strict=False)}
    return {
        "data": [
            {"source": "ryujaehun", "steps": {m: sum(r.step.host == m for r in found) for m in machines}}
        ],
        "forward_seconds": cost["forward"],
        "backward_seconds": cost["backward"],
        "optimizer_seconds": cost["forward"],
        "view_seconds": cost["view"],
        "kernel_seconds": 0.0,
        "compiled_share": 1.0,
        "machines": {name: float(speed / middle) for name, speed in zip(machines, speeds, strict=True)},
        "p10": float(np.min(speeds) / middle),
        "p90": float(np.max(speeds) / middle),
        "mean_absolute_error": float(np.mean(np.abs(np.expm1(left)))),
        "assumed": "an optimizer's call costs what a forward operator does; further kernels of one operator "
        "cost the host nothing; compiled kernels cost what operators do",
    }


def _launches(step: SmallStep) -> Launches:
    request = WorkloadRequest(
        step.model,
        batch=ryujaehun_steps.BATCH,
        precision=step.precision,
        forward_only=step.forward_only,
        no_optimizer=True,
    )
    graph = graph_of(workload_of(request))
    target = device(step.device_id)
    priced = price(operators(graph), target, operator_models(target))
    launching = np.array([op.work.kernels > 0 for op in priced.ops])
    in_forward = np.array([op.phase is Phase.FORWARD for op in priced.ops])
    return Launches(
        step=step,
        forward=(launching & in_forward).astype(float),
        backward=(launching & ~in_forward).astype(float),
        view=(~launching).astype(float),
        device_seconds=priced.seconds,
        parameters=0 if step.forward_only else _parameters(graph),
    )


def _parameters(graph: Graph) -> int:
    return sum(buffer.role is Role.PARAMETER for buffer in graph.buffers)


def _told(row: Launches, x: Floats, machines: Sequence[str]) -> float:
    """Seconds of a step; x holds logarithms: four costs, then speed, constant and kernel factor by machine."""
    place, count = machines.index(row.step.host), len(machines)
    forward, backward, view, parameter = np.exp(x[:4]) * np.exp(x[4 + place])
    host = forward * row.forward + backward * row.backward + view * row.view
    ends = ends_in_order(host, row.device_seconds * np.exp(x[4 + 2 * count + place]))
    return float(ends[-1] + np.exp(x[4 + count + place]) + parameter * row.parameters)


def _speeds(x: Floats, machines: Sequence[str]) -> Floats:
    return x[4 : 4 + len(machines)]


def _pull(x: Floats, machines: Sequence[str]) -> Floats:
    """Weak ties: speeds have a geometric mean of one, kernels are near their predicted times."""
    factors = x[4 + 2 * len(machines) :]
    return np.append(0.5 * factors, np.sum(_speeds(x, machines)))
