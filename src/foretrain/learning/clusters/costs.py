"""The time of a data-parallel step on a cluster, from what it computes, launches and reduces.

    computing = (device^q + host^q)^(1/q),  host = fixed + launches · launch
    step      = computing + what the reductions take beyond the backward pass

A bucket's all-reduce goes around one flat ring of all n workers, k of them on the fullest node:

    2(n-1)/n · bytes / B + α,   B = min(pair · (2/k)^c inside a node, network between nodes)

q of 1 is a host that waits for its device after every launch, a large q one that runs ahead of it. A
`network` far below the sheet's is that of a single TCP stream (AWS: 5 Gbit/s for one flow). Workers in
containers of their own may not reach each other's memory: all of a node share one card (contention c of 1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrain.learning.clusters.steps import ClusterSteps
from foretrain.prediction.operators.listing import Floats


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
    found: Floats = steps.bucket_bytes * (passes / rate)[:, None] + wires.startup_seconds
    return found


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
