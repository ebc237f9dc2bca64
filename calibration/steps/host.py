"""How long a host takes to launch: fitted on steps short enough for it to matter, on several machines.

    step = launches and kernels in order (see `launching`) + a constant + parameters · bookkeeping

The last two are the loop's own: copying the batch to the device, and zeroing and adding up gradients one
parameter at a time. Every machine has its own speed and its own error of the kernels' times; what an operator
costs relative to another is the same everywhere. The machine with the newest software is what is shipped, the
spread between machines is the interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibration.datasets import ryujaehun, timm_benchmark
from calibration.datasets.ryujaehun import SmallStep
from calibration.datasets.timm_models import families
from calibration.least_squares import minimise
from foretrain.facts.devices import device
from foretrain.prediction.cost_models.priced_step import ends_in_order
from foretrain.prediction.operators.catalogue import operator_models
from foretrain.prediction.operators.listing import Floats
from foretrain.prediction.operators.pricing import price
from foretrain.workloads.graph import Graph, Phase, Role
from foretrain.workloads.requests import WorkloadRequest, workload_of
from foretrain.workloads.rules import operators
from foretrain.workloads.workload import graph_of

FILE = "host.json"
_START = {"forward": 2e-5, "backward": 2e-5, "parameter": 5e-5}
"""Where the search starts, in seconds."""


_COSTS = len(_START)
_NEWEST = "timm rtx4090"
_SHORTEST = 40
"""How many of timm's forward passes on its RTX 4090, the shortest, are looked at."""


@dataclass(frozen=True, eq=False)
class Launches:
    """One step as the host sees it: which operators launch in which phase."""

    host: str
    seconds: float
    forward: Floats
    backward: Floats
    device_seconds: Floats
    parameters: int


def calibrate(data: Path, graphs: Path) -> Mapping[str, Any]:
    """Fit the host model on all machines; `graphs` keeps the traced timm models."""
    timed = [*_torchvision(data), *_timm(data, graphs)]
    machines = sorted({row.host for row in timed})
    count = len(machines)
    start = np.concatenate(
        [np.log(list(_START.values())), np.zeros(count), np.full(count, np.log(1e-3)), np.zeros(count)]
    )

    def errors(x: Floats) -> Floats:
        return np.array([np.log(_predicted_seconds(row, x, machines) / row.seconds) for row in timed])

    best = minimise(lambda x: np.append(errors(x), _pull(x, machines)), start)
    speeds = np.exp(_speeds(best, machines))
    speeds = speeds / speeds[machines.index(_NEWEST)]
    cost = {
        name: float(np.exp(value + _speeds(best, machines)[machines.index(_NEWEST)]))
        for name, value in zip(_START, best, strict=False)
    }
    steps = {name: sum(row.host == name for row in timed) for name in machines}
    return {
        "source": f"calibrations/{FILE}",
        "data": [{"source": "ryujaehun, timm", "steps": steps}],
        "forward_seconds": cost["forward"],
        "backward_seconds": cost["backward"],
        "optimizer_seconds": cost["forward"],
        "view_seconds": 0.0,
        "kernel_seconds": 0.0,
        "compiled_share": 1.0,
        "machines": dict(zip(machines, speeds.tolist(), strict=True)),
        "p10": float(min(*speeds, 1.0)),
        "p90": float(max(*speeds, 1.0)),
        "mean_absolute_error": float(np.mean(np.abs(np.expm1(errors(best))))),
        "assumed": "an optimizer's call costs what a forward operator does; further kernels of one operator "
        "cost the host nothing, nor do views, for which the fit finds no cost; compiled kernels cost what "
        "operators do",
    }


def _torchvision(data: Path) -> Iterator[Launches]:
    for step in ryujaehun.read(data):
        yield _launches(step.host, step.seconds, step.device_id, graph_of(workload_of(_request(step))))


def _request(step: SmallStep) -> WorkloadRequest:
    return WorkloadRequest(
        step.model,
        batch=ryujaehun.BATCH,
        precision=step.precision,
        forward_only=step.forward_only,
        no_optimizer=True,
    )


def _timm(data: Path, graphs: Path) -> Iterator[Launches]:
    passes = [step for step in timm_benchmark.inference(data) if step.device_id == "rtx4090"]
    shortest = sorted(passes, key=lambda step: step.seconds)[:_SHORTEST]
    known = dict(families([step.wanted for step in shortest], graphs))
    for step in shortest:
        if step.wanted in known:
            graph = known[step.wanted].at({"batch": step.batch})
            yield _launches(_NEWEST, step.seconds, step.device_id, graph)


def _launches(host: str, seconds: float, device_id: str, graph: Graph) -> Launches:
    target = device(device_id)
    priced = price(operators(graph), target, operator_models(target))
    launching = np.array([op.work.kernels > 0 for op in priced.ops])
    in_forward = np.array([op.phase is Phase.FORWARD for op in priced.ops])
    return Launches(
        host=host,
        seconds=seconds,
        forward=(launching & in_forward).astype(float),
        backward=(launching & ~in_forward).astype(float),
        device_seconds=priced.seconds,
        parameters=_parameters(graph) if any(~in_forward) else 0,
    )


def _parameters(graph: Graph) -> int:
    return sum(buffer.role is Role.PARAMETER for buffer in graph.buffers)


def _predicted_seconds(row: Launches, x: Floats, machines: Sequence[str]) -> float:
    """Seconds of a step; x holds logarithms: the costs, then speed, constant, kernel factor by machine."""
    place, count = machines.index(row.host), len(machines)
    own = x[_COSTS:].reshape(3, count)[:, place]
    forward, backward, parameter = np.exp(x[:_COSTS] + own[0])
    ends = ends_in_order(forward * row.forward + backward * row.backward, row.device_seconds * np.exp(own[2]))
    return float(ends[-1] + np.exp(own[1]) + parameter * row.parameters)


def _speeds(x: Floats, machines: Sequence[str]) -> Floats:
    return x[_COSTS : _COSTS + len(machines)]


def _pull(x: Floats, machines: Sequence[str]) -> Floats:
    """Weak ties: speeds have a geometric mean of one, kernels are near their predicted times."""
    factors = x[_COSTS + 2 * len(machines) :]
    return np.append(0.5 * factors, np.sum(_speeds(x, machines)))
