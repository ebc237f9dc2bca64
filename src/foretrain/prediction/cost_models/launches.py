"""Launches: kernels run in order on the device, each after the host has launched it.

    launched_i = launched_{i-1} + host_i            end_i = max(end_{i-1}, launched_i) + device_i

If kernels are shorter than launches, the device waits for the host: the step is launch-bound. A host that
does not wait for the end of a step runs ahead, and a steady step takes max(Σ host, Σ device). A loop that
waits for every step (to read the loss or to time it) starts each step with an idle device.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrain.prediction.operators.listing import Floats


@dataclass(frozen=True, eq=False)
class Execution:
    """End of each operator of a step on the device, and the wait of the device before it."""

    ends: Floats
    waits: Floats

    @property
    def seconds(self) -> float:
        """Time between the ends of consecutive steps."""
        return float(self.ends[-1]) if len(self.ends) else 0.0


def ends_in_order(host: Floats, device: Floats) -> Floats:
    """End times of operators launched in order from time 0: the recursion above in closed form."""
    busy = np.cumsum(device)
    return busy + np.maximum.accumulate(np.cumsum(host) - (busy - device))


def synchronised_step(host: Floats, device: Floats) -> Execution:
    """A step of a loop that waits for every step: it starts with an idle device."""
    return _execution(ends_in_order(host, device), device)


def steady_step(host: Floats, device: Floats) -> Execution:
    """A steady step of a loop that never waits, timed from the end of the previous step.

    With a slower device the host is far ahead, and the device never waits. With a slower host the device
    catches up in every step, so the second of two steps equals all later ones.
    """
    if device.sum() >= host.sum():
        return Execution(np.cumsum(device), np.zeros(len(device)))
    ends = ends_in_order(np.tile(host, 2), np.tile(device, 2))
    return _execution(ends[len(host) :] - ends[len(host) - 1], device)


def _execution(ends: Floats, device: Floats) -> Execution:
    waits = np.diff(ends, prepend=0.0) - device
    return Execution(ends, np.maximum(waits, 0.0))
