"""Measure on an idle machine: wait for a quiet moment, and repeat measurements that were disturbed.

Both stop at a deadline, after which measurements are taken as they are.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from experiments.trials import TRIALS

from foretrain.measuring.distributed_trials.crew import Crew
from foretrain.measuring.stopwatch import OtherLoad

DISTURBED_CORES = 0.15
"""Cores used by others that count as a disturbance."""
_ATTEMPTS = 4
_GLANCE_SECONDS = 0.2


@dataclass
class Quiet:
    """Tasks for a crew; `disturbances` are the cores others used during each, `until` ends the waiting."""

    crew: Crew
    until: float
    disturbances: list[float] = field(default_factory=list)

    def do(self, trial: str, **settings: Any) -> list[dict[str, Any]]:
        """The answers of the attempt that others disturbed least; one that is not disturbed is enough."""
        best: tuple[float, list[dict[str, Any]]] | None = None
        for _ in range(_ATTEMPTS):
            self._wait()
            others = OtherLoad(self.crew.processes)
            answers = self.crew.do(TRIALS[trial], **settings)
            cores = others.cores
            if best is None or cores < best[0]:
                best = cores, answers
            if cores < DISTURBED_CORES or time.monotonic() > self.until:
                break
        assert best is not None
        self.disturbances.append(best[0])
        return best[1]

    def _wait(self) -> None:
        while time.monotonic() < self.until:
            others = OtherLoad(self.crew.processes)
            time.sleep(_GLANCE_SECONDS)
            if others.cores < DISTURBED_CORES:
                break
