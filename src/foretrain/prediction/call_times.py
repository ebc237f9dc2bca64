"""How long each call of a step takes on the device, and on the host that launches it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foretrain.prediction.operators.table import Floats
from foretrain.prediction.step import PricedStep


@dataclass(frozen=True, eq=False)
class CallTimes:
    """Seconds of each call. `device` and `host` have one entry for each call of the graph."""

    device: Floats
    host: Floats

    def where(self, kept: NDArray[np.int64]) -> CallTimes:
        """The times of some calls."""
        return CallTimes(self.device[kept], self.host[kept])


def call_times(step: PricedStep) -> CallTimes:
    """The times of each call of a priced step."""
    calls = step.priced.listing.calls
    count = len(step.graph.calls)
    device = np.bincount(calls, step.priced.seconds, count).astype(float)
    host = np.bincount(calls, step.launching, count).astype(float)
    return CallTimes(device, host)
