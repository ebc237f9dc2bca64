"""The time of a data-parallel step on a cluster, from what it computes, launches and reduces, and its fit.

    computing = (device^q + host^q)^(1/q),  host = fixed + launches · launch
    step      = computing + what the reductions take beyond the backward pass

A bucket's all-reduce runs on one flat ring of all n workers, k of them on the fullest node:

    2(n-1)/n · bytes / B + α,   B = min(pair · (2/k)^c inside a node, network between nodes)

q of 1 is a host that waits for its device after every launch, a large q one that runs ahead of it. A
`network` far below the sheet's is that of a single TCP stream (AWS: 5 Gbit/s for one flow). Workers in
containers of their own may not reach each other's memory: all workers of a node share one card (contention c
of 1).

Hosts are fitted by least squares of log computing time, measured (the step without its wait) over predicted,
with one overlap power for all clusters. Wires are fitted by least absolute log errors of the step, since
outliers are many. Models have equal weight, and so have one and several devices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from calibration.clusters.steps import ClusterSteps
from foretrain.prediction.operators.pricing import Floats

_MOST_ROWS = 400
_MOST_RING_ROWS = 400
_ROUNDS = 2
_HOST_BOUNDS = ((np.log(1e-4), np.log(0.25)), (np.log(2e-6), np.log(4e-4)))
_POWER_BOUNDS = (np.log(0.002), np.log(9.0))
_HOST_STARTS = (np.log(5e-3), np.log(60e-3))
_LAUNCH_START, _POWER_START = np.log(2e-5), np.log(0.4)
_WIRE_BOUNDS = (
    (np.log(5e7), np.log(3e10)),
    (0.0, 1.2),
    (np.log(5e7), np.log(3e10)),
    (np.log(5e-6), np.log(2e-3)),
)
_WIRE_STARTS = (
    (np.log(2e9), 0.5, np.log(1e9), np.log(1e-4)),
    (np.log(6e9), 1.0, np.log(4e9), np.log(1e-3)),
)
Loss = Callable[[Floats], float]


@dataclass(frozen=True, slots=True)
class Hosts:
    """What the hosts of a cluster add to every step, and how much of it runs beside the devices."""

    fixed_seconds: float
    launch_seconds: float
    overlap_power: float


@dataclass(frozen=True, slots=True)
class Wires:
    """Rates of one worker in a ring, one direction; see the module."""

    pair_bytes_per_second: float
    contention: float
    network_bytes_per_second: float
    startup_seconds: float


def computing_seconds(steps: ClusterSteps, hosts: Hosts) -> Floats:
    """What a step takes without waiting for others."""
    host = hosts.fixed_seconds + hosts.launch_seconds * steps.launches
    power = hosts.overlap_power
    longest = np.maximum(steps.device_seconds, host)
    shortest = np.minimum(steps.device_seconds, host)
    both: Floats = longest * (1 + (shortest / longest) ** power) ** (1 / power)
    return both


def ring_seconds(steps: ClusterSteps, wires: Wires) -> Floats:
    """The all-reduce of every bucket."""
    together = np.maximum(steps.fullest, 2)
    inside = wires.pair_bytes_per_second * (2 / together) ** wires.contention
    rate = np.where(steps.fullest > 1, inside, np.inf)
    rate = np.where(steps.nodes > 1, np.minimum(rate, wires.network_bytes_per_second), rate)
    passes = 2 * (steps.devices - 1) / steps.devices
    seconds: Floats = steps.bucket_bytes * (passes / rate)[:, None] + wires.startup_seconds
    return seconds


def exposed_seconds(steps: ClusterSteps, reductions: Floats) -> Floats:
    """How long after the backward pass the last reduction ends: one after the other, each once ready."""
    end = np.full(len(steps), -np.inf)
    for column in range(steps.bucket_bytes.shape[1]):
        ready = np.maximum(end, -steps.bucket_leads[:, column]) + reductions[:, column]
        end = np.where(steps.bucket_bytes[:, column] > 0, ready, end)
    exposed: Floats = np.where(steps.devices > 1, np.maximum(end, 0.0), 0.0)
    return exposed


def step_seconds(steps: ClusterSteps, hosts: Hosts, wires: Wires) -> Floats:
    """The whole step."""
    return computing_seconds(steps, hosts) + exposed_seconds(steps, ring_seconds(steps, wires))


def fit_hosts(steps: ClusterSteps) -> dict[str, Hosts]:
    """The hosts of every cluster that steps are of."""
    names = sorted(set(steps.clusters.tolist()))
    chosen = steps.where(_thinned(steps, _MOST_ROWS))
    weights = _even(chosen)
    measured = np.log(chosen.step_seconds - chosen.sync_seconds)
    parts = {name: np.flatnonzero(chosen.clusters == name) for name in names}
    rows = {name: chosen.where(parts[name]) for name in names}

    def loss(x: Floats) -> float:
        hosts = _hosts(x, names)
        total = 0.0
        for name in names:
            off = np.log(computing_seconds(rows[name], hosts[name])) - measured[parts[name]]
            total += float((weights[parts[name]] * off**2).sum())
        return total

    bounds = [_POWER_BOUNDS, *(bound for _ in names for bound in _HOST_BOUNDS)]
    starts = [
        np.array([_POWER_START, *(value for _ in names for value in (fixed, _LAUNCH_START))])
        for fixed in _HOST_STARTS
    ]
    return _hosts(_least(loss, starts, bounds), names)


def _hosts(x: Floats, names: Sequence[str]) -> dict[str, Hosts]:
    power = 1 + float(np.exp(x[0]))
    return {
        name: Hosts(float(np.exp(x[1 + 2 * index])), float(np.exp(x[2 + 2 * index])), power)
        for index, name in enumerate(names)
    }


def fit_wires(steps: ClusterSteps) -> dict[str, Wires]:
    """The wires of every cluster, from steps on several devices."""
    wires = {}
    for name in sorted(set(steps.clusters.tolist())):
        here = steps.where((steps.clusters == name) & (steps.devices > 1))
        wires[name] = _fit_wires(here.where(_thinned(here, _MOST_RING_ROWS)))
    return wires


def _fit_wires(steps: ClusterSteps) -> Wires:
    weights = _even(steps)
    computing = steps.step_seconds - steps.sync_seconds

    def loss(x: Floats) -> float:
        waiting = exposed_seconds(steps, ring_seconds(steps, _wires(x)))
        return float((weights * np.abs(np.log((computing + waiting) / steps.step_seconds))).sum())

    return _wires(_least(loss, [np.array(start) for start in _WIRE_STARTS], _WIRE_BOUNDS))


def _wires(x: Floats) -> Wires:
    return Wires(float(np.exp(x[0])), float(x[1]), float(np.exp(x[2])), float(np.exp(x[3])))


def _least(loss: Loss, starts: Sequence[Floats], bounds: Sequence[tuple[float, float]]) -> Floats:
    """The arguments of the least loss that Powell's method finds from any of the starts."""
    from scipy.optimize import minimize

    solutions = []
    for start in starts:
        x = start
        for _ in range(_ROUNDS):
            x = minimize(loss, x, method="Powell", bounds=bounds, options={"maxiter": 15}).x
        solutions.append(x)
    best: Floats = min(solutions, key=loss)
    return best


def _kinds(steps: ClusterSteps) -> list[tuple[str, str, bool]]:
    several = (steps.devices > 1).tolist()
    return list(zip(steps.clusters.tolist(), steps.models.tolist(), several, strict=True))


def _thinned(steps: ClusterSteps, most: int) -> np.ndarray:
    """At most `most` rows of each cluster, model and kind, evenly over the file."""
    rows_of_kind: dict[tuple[str, str, bool], list[int]] = {}
    for index, kind in enumerate(_kinds(steps)):
        rows_of_kind.setdefault(kind, []).append(index)
    kept = [
        members[round(place)]
        for members in rows_of_kind.values()
        for place in np.linspace(0, len(members) - 1, min(most, len(members))).tolist()
    ]
    return np.array(sorted(kept), np.int64)


def _even(steps: ClusterSteps) -> Floats:
    """Weights that make models, and single and several devices, have equal weight."""
    kinds = _kinds(steps)
    counts: Mapping[tuple[str, str, bool], int] = {kind: kinds.count(kind) for kind in set(kinds)}
    return np.array([1 / counts[kind] for kind in kinds])
