"""How long a host takes to launch: fitted on steps short enough for it to matter, on several machines.

    step = launches and kernels in order (see `launching`) + a constant + parameters · bookkeeping

The last two are the loop's own: copying the batch to the device, and zeroing and adding up gradients one
parameter at a time. Every machine has its own speed and its own error of the kernels' times; what an operator
costs relative to another is the same everywhere. KernelBench's machines have the newest software: their
geometric mean is what is shipped; the spread of all machines is the interval. Backward passes were timed on
older machines (ryujaehun) alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibration.datasets import kernelbench, ryujaehun
from calibration.datasets.ryujaehun import SmallStep
from calibration.least_squares import minimise
from foretrain.facts.devices import device
from foretrain.prediction.operators.host import ends_in_order, in_library
from foretrain.prediction.operators.pricing import PHASES, Floats, Listing, operator_models, price
from foretrain.workloads.fusion import fuse
from foretrain.workloads.graph import Graph, Phase, Role
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.rules import operators
from foretrain.workloads.workload import graph_of, workload_of

FILE = "host.json"
_START = {
    "forward": 1e-5,
    "library": 1e-5,
    "backward": 1e-5,
    "compiled_call": 3e-5,
    "compiled_kernel": 1e-5,
    "compiled_library": 1e-5,
    "captured": 6e-5,
    "parameter": 5e-5,
}
"""Where the search starts, in seconds; the last is bookkeeping of a parameter, the others are launches."""
_COSTS = len(_START)
_LAUNCHES = _COSTS - 1
_NEWEST = "KernelBench "
_LEFT_OUT = frozenset({"RTX_3090_Ti"})
"""Its short calls take less than a launch: its clock starts when the kernel does."""
_MOST_BUSY = 0.5
"""Share of a call that the kernels may take: longer ones show errors of kernels."""


@dataclass(frozen=True, eq=False)
class Launches:
    """One step as the host sees it: `launches[i, c]` is 1 where operator i has cost c of `_START`."""

    host: str
    seconds: float
    launches: Floats
    device_seconds: Floats
    parameters: int


def calibrate(data: Path, graphs: Path) -> Mapping[str, Any]:
    """Fit the host model on all machines."""
    del graphs
    return fit([*_torchvision(data), *_kernelbench(data)])


def without_kernelbench(data: Path) -> Mapping[str, Any]:
    """The entries without KernelBench: older machines alone, and compiled steps as the search starts with."""
    known = [f"{name}_seconds" for name in (*_START, "optimizer") if name != "parameter"]
    fitted = fit([*_torchvision(data)])
    return {name: fitted[name] for name in (*known, "p10", "p90")}


def fit(timed: Sequence[Launches]) -> Mapping[str, Any]:
    """The constants of the host from timed steps."""
    machines = sorted({row.host for row in timed})
    count = len(machines)
    start = np.concatenate(
        [np.log(list(_START.values())), np.zeros(count), np.full(count, np.log(1e-5)), np.zeros(count)]
    )

    def errors(x: Floats) -> Floats:
        return np.array([np.log(_predicted_seconds(row, x, machines) / row.seconds) for row in timed])

    best = minimise(lambda x: np.append(errors(x), _pull(x, machines)), start, scale=0.1)
    speeds = np.exp(_speeds(best, machines))
    newest = [speed for name, speed in zip(machines, speeds, strict=True) if name.startswith(_NEWEST)]
    typical = float(np.exp(np.mean(np.log(newest or speeds))))
    cost = {f"{name}_seconds": float(np.exp(x)) * typical for name, x in zip(_START, best, strict=False)}
    cost.pop("parameter_seconds")
    p10, p90 = np.quantile(speeds / typical, [0.1, 0.9])
    return {
        "source": f"calibrations/{FILE}",
        "data": [
            {
                "source": "ryujaehun, KernelBench",
                "steps": {name: sum(row.host == name for row in timed) for name in machines},
            }
        ],
        **cost,
        "optimizer_seconds": cost["forward_seconds"],
        "machines": dict(zip(machines, (speeds / typical).tolist(), strict=True)),
        "p10": float(p10),
        "p90": float(p90),
        "mean_absolute_error": float(np.mean(np.abs(np.expm1(errors(best))))),
        "assumed": "an optimizer's call costs what a forward operator does; further kernels of one operator "
        "cost the host nothing, nor do views",
    }


def _kernelbench(data: Path) -> Iterator[Launches]:
    """Calls of KernelBench's small version that their kernels take less than half of."""
    graphs = {
        problem.key: graph
        for problem in kernelbench.problems(data)
        if problem.version == "v0" and (graph := kernelbench.graph_of(problem)) is not None
    }
    listings: dict[tuple[tuple[str, int, str], bool], Listing] = {}
    for time in kernelbench.times(data, (kernelbench.EAGER, kernelbench.COMPILED, kernelbench.CAPTURED)):
        if time.key not in graphs or time.host in _LEFT_OUT:
            continue
        is_compiled = time.mode != kernelbench.EAGER
        if (time.key, is_compiled) not in listings:
            graph = graphs[time.key]
            works = kernelbench.works_in_tf32(fuse(graph) if is_compiled else graph)
            listings[time.key, is_compiled] = Listing(works)
        listing, target = listings[time.key, is_compiled], device(time.device_id)
        seconds = price(listing, target, operator_models(target)).seconds
        if seconds.sum() < _MOST_BUSY * time.seconds:
            launches = _compiled_launches(listing) if is_compiled else _eager_launches(listing)
            if time.mode == kernelbench.CAPTURED:
                launches = np.zeros_like(launches)
                launches[0, _place("captured")] = 1.0
            yield Launches(f"{_NEWEST}{time.device_id} {time.host}", time.seconds, launches, seconds, 0)


def _place(cost: str) -> int:
    return list(_START).index(cost)


def _eager_launches(listing: Listing) -> Floats:
    launching = listing.kernels > 0
    in_forward = listing.phases == PHASES.index(Phase.FORWARD)
    launches = np.zeros((len(launching), _LAUNCHES))
    launches[:, _place("forward")] = launching & in_forward
    launches[:, _place("library")] = launching & in_forward & in_library(listing)
    launches[:, _place("backward")] = launching & ~in_forward
    return launches


def _compiled_launches(listing: Listing) -> Floats:
    """Of a compiled forward pass."""
    launching = listing.kernels > 0
    launches = np.zeros((len(launching), _LAUNCHES))
    launches[:, _place("compiled_kernel")] = launching
    launches[:, _place("compiled_library")] = launching & in_library(listing)
    launches[np.argmax(launching), _place("compiled_call")] = 1.0
    return launches


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


def _launches(host: str, seconds: float, device_id: str, graph: Graph) -> Launches:
    target = device(device_id)
    priced = price(operators(graph), target, operator_models(target))
    is_training = any(op.phase is not Phase.FORWARD for op in priced.ops)
    return Launches(
        host=host,
        seconds=seconds,
        launches=_eager_launches(priced.listing),
        device_seconds=priced.seconds,
        parameters=_parameters(graph) if is_training else 0,
    )


def _parameters(graph: Graph) -> int:
    return sum(buffer.role is Role.PARAMETER for buffer in graph.buffers)


def _predicted_seconds(row: Launches, x: Floats, machines: Sequence[str]) -> float:
    """Seconds of a step; x holds logarithms: the costs, then speed, constant, kernel factor by machine."""
    place, count = machines.index(row.host), len(machines)
    own = x[_COSTS:].reshape(3, count)[:, place]
    costs = np.exp(x[:_COSTS] + own[0])
    ends = ends_in_order(row.launches @ costs[:_LAUNCHES], row.device_seconds * np.exp(own[2]))
    return float(ends[-1] + np.exp(own[1]) + costs[_LAUNCHES] * row.parameters)


def _speeds(x: Floats, machines: Sequence[str]) -> Floats:
    return x[_COSTS : _COSTS + len(machines)]


def _pull(x: Floats, machines: Sequence[str]) -> Floats:
    """Weak ties: speeds have a geometric mean of one, kernels are near their predicted times."""
    factors = x[_COSTS + 2 * len(machines) :]
    return np.append(0.5 * factors, np.sum(_speeds(x, machines)))
