"""A cost model whose steps take a given time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretrain.facts.devices import Device
from foretrain.prediction.cost_models import NO_HOST, CostModel, PricedStep
from foretrain.prediction.operators.pricing import KINDS, PHASES, Confidence, Knowledge, PricedOps, listing_of
from foretrain.workloads.graph import Graph, Phase

CLOCK = Confidence(Knowledge.MEASURED, 1.0, 1.1, "a clock")


@dataclass(frozen=True)
class FixedSteps(CostModel):
    """Forward a third, backward two thirds, of `device_seconds` and of the wait for launches.

    In both passes the first operator is limited by arithmetic, with `arithmetic_share` of the pass, and the
    second by bandwidth; all others take no time. Launches end when the step ends.
    """

    device_seconds: float = 1.0
    waiting_seconds: float = 0.0
    arithmetic_share: float = 1.0

    def price_all(self, graphs: Sequence[Graph], device: Device) -> tuple[PricedStep, ...]:
        del device
        return tuple(self._priced(graph) for graph in graphs)

    def _priced(self, graph: Graph) -> PricedStep:
        listing = listing_of(graph)
        computing, moving, launching = (np.zeros(len(listing.ops)) for _ in range(3))
        share, waiting = self.arithmetic_share, self.waiting_seconds
        thirds = {Phase.FORWARD: 1 / 3, Phase.BACKWARD: 2 / 3}
        for phase, part in thirds.items():
            first, second = np.flatnonzero(listing.phases == PHASES.index(phase))[:2]
            computing[first] = share * part * self.device_seconds
            moving[second] = (1 - share) * part * self.device_seconds
            launching[first] = part * waiting
            if waiting and phase is Phase.BACKWARD:
                launching[first] += self.device_seconds / 3
        if waiting:
            launching[-1] = self.device_seconds + waiting - launching.sum()
        confidence = {KINDS[kind]: CLOCK for kind in set(listing.kinds.tolist())}
        priced = PricedOps(listing, computing + moving, computing, moving, confidence)
        return PricedStep(graph, priced, launching, NO_HOST)
