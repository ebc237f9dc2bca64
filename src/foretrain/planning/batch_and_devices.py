"""Batch size and number of devices chosen together: time to target = steps to target x time per step.

A larger batch keeps more devices busy but needs more epochs (`BatchSizeLaw`), so neither can be chosen
alone:

    seconds(n, B) = steps(B) · seconds_at(n, B),      usd = n · seconds · price of a device-second
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from foretrain.convergence.batch_size import BatchSizeLaw
from foretrain.errors import InvalidRequest
from foretrain.estimates import Quantiles
from foretrain.units import HOUR

SecondsAt = Callable[[int, int], float | None]
"""Seconds of a step of (devices, global batch), or None where it does not fit or does not divide."""


@dataclass(frozen=True, slots=True)
class BatchAndDevices:
    """One pair with what it takes to the target; the interval is that of the steps alone."""

    devices: int
    batch: int
    step_seconds: float
    steps: Quantiles
    usd: float

    @property
    def seconds(self) -> Quantiles:
        """Time to target."""
        return self.steps.scale(self.step_seconds)


@dataclass(frozen=True, slots=True)
class BatchAndDevicesCurve:
    """The best pair, and the curve: for each number of devices its best batch."""

    best: BatchAndDevices
    by_devices: tuple[BatchAndDevices, ...]
    pairs: tuple[BatchAndDevices, ...]
    """All pairs that fit, by devices, then by batch."""

    def speedup(self, point: BatchAndDevices) -> float:
        """Time to target of the fewest devices of the curve over that of the point, both at their best."""
        return self.by_devices[0].seconds.p50 / point.seconds.p50


def choose_batch_and_devices(
    law: BatchSizeLaw,
    samples: float,
    seconds_at: SecondsAt,
    devices: Sequence[int],
    batches: Sequence[int],
    usd_per_device_hour: float = 0.0,
    deadline: float | None = None,
) -> BatchAndDevicesCurve:
    """The best pair of the grid: the fastest, or with a deadline the cheapest that meets it.

    Of equals the fewer devices, then the smaller batch. Where no pair meets the deadline, the fastest counts.
    """
    _check(samples, devices, batches, usd_per_device_hour)
    steps_of = {batch: law.steps_at(batch, samples) for batch in sorted(set(batches))}
    pairs = tuple(
        BatchAndDevices(count, batch, step, steps, count * steps.p50 * step / HOUR * usd_per_device_hour)
        for count in sorted(set(devices))
        for batch, steps in steps_of.items()
        if (step := _valid(seconds_at(count, batch), count, batch)) is not None
    )
    if not pairs:
        raise InvalidRequest(
            f"none of {len(set(devices))} x {len(steps_of)} pairs of devices and batch fits; "
            "give smaller batches or more devices"
        )
    counts = np.array([pair.devices for pair in pairs])
    by_devices = tuple(
        _fastest([pairs[index] for index in np.flatnonzero(counts == count)]) for count in np.unique(counts)
    )
    in_time = [pair for pair in pairs if deadline is not None and pair.seconds.p50 <= deadline]
    best = min(in_time, key=lambda pair: (pair.usd, pair.seconds.p50)) if in_time else _fastest(pairs)
    return BatchAndDevicesCurve(best, by_devices, pairs)


def _fastest(pairs: Sequence[BatchAndDevices]) -> BatchAndDevices:
    return min(pairs, key=lambda pair: (pair.seconds.p50, pair.devices, pair.batch))


def _valid(step_seconds: float | None, devices: int, batch: int) -> float | None:
    if step_seconds is not None and not (math.isfinite(step_seconds) and step_seconds > 0):
        raise InvalidRequest(
            f"a step of batch {batch} on {devices} devices takes {step_seconds} s; "
            "give a finite time above 0, or None where it does not fit"
        )
    return step_seconds


def _check(samples: float, devices: Sequence[int], batches: Sequence[int], usd_per_hour: float) -> None:
    if not (math.isfinite(samples) and samples > 0):
        raise InvalidRequest(f"a data set of {samples:g} samples; give at least 1")
    if not devices or not batches or min(devices) < 1 or min(batches) < 1:
        raise InvalidRequest("give one or more numbers of devices and batch sizes, each at least 1")
    if not (math.isfinite(usd_per_hour) and usd_per_hour >= 0):
        raise InvalidRequest(f"a device at {usd_per_hour} USD an hour; give a finite price of at least 0")
