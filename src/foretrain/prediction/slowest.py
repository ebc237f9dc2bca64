"""Waiting for the slowest: what devices that vary from step to step add to a step they all take part in."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from foretrain.estimates import Estimate, Part
from foretrain.prediction.strategies.stragglers import expected_maximum, slowest_of
from foretrain.prediction.strategies.worker_times import WorkerTimes

SLOWEST = "waiting for the slowest device"


@lru_cache(maxsize=1024)
def slowdown(devices: int, jitter: float) -> float:
    """The expected maximum of so many devices over their mean."""
    return 1.0 if not jitter or devices == 1 else expected_maximum(1.0, jitter, devices)


def with_slowest(estimate: Estimate, devices: int, jitter: float) -> Estimate:
    """Every step waits for the slowest of the devices that exchange gradients."""
    if not jitter or devices == 1:
        return estimate
    slowest = slowest_of(WorkerTimes(estimate.value, jitter), devices)
    waits = max(0.0, slowest.seconds - estimate.value)
    below = min(waits, max(0.0, slowest.seconds - slowest.p10))
    part = Part(SLOWEST, waits, "jitter between devices", below, max(0.0, slowest.p90 - slowest.seconds))
    return replace(estimate, parts=(*estimate.parts, part))
