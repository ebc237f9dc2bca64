"""How long each call of a step takes on the device, and on the host that launches it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foretrain.prediction.operators.table import Floats
from foretrain.prediction.step import PricedStep
from foretrain.workloads.graph import Phase


@dataclass(frozen=True, eq=False)
class CallTimes:
    """Seconds of each call. `device` and `host` have one entry for each call of the graph."""

    device: Floats
    host: Floats

    def where(self, kept: NDArray[np.int64]) -> CallTimes:
        """The times of some calls."""
        return CallTimes(self.device[kept], self.host[kept])


def call_times(step: PricedStep, forward_launchers: int = 1) -> CallTimes:
    """The times of each call of a priced step; one host may launch several forward passes in turn."""
    calls = np.array([op.call for op in step.priced.ops], int)
    count = len(step.graph.calls)
    device = np.bincount(calls, step.priced.seconds, count).astype(float)
    host = np.bincount(calls, step.launching, count).astype(float)
    if forward_launchers > 1:
        forward = np.array([call.phase is Phase.FORWARD for call in step.graph.calls], bool)
        host = np.where(forward, host * forward_launchers, host)
    return CallTimes(device, host)
