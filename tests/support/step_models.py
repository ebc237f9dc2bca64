"""Steps that take as long as a test says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foretrain.errors import InvalidRequest
from foretrain.estimates import Estimate, Part
from foretrain.facts.devices import Device
from foretrain.prediction.cost_models.priced_step import Binding, PricedStep, StepEstimate
from foretrain.prediction.cost_models.step_models import CostModel
from foretrain.prediction.operators._base import Knowledge
from foretrain.workloads.graph import Graph, Phase


@dataclass(frozen=True)
class FixedSteps(CostModel):
    """Forward a third, backward two thirds, of `device_seconds` and of what waiting adds to it."""

    device_seconds: float = 1.0
    waiting_seconds: float = 0.0
    arithmetic_share: float = 1.0

    def estimate(self, graph: Graph, device: Device) -> StepEstimate:
        del graph, device
        whole = self.device_seconds + self.waiting_seconds
        parts = [Part("forward linear", self.device_seconds, "a clock", 0.0, 0.1 * self.device_seconds)]
        if self.waiting_seconds:
            parts.append(Part("waiting for launches", self.waiting_seconds, "a host"))
        return StepEstimate(
            estimate=Estimate("s", tuple(parts)),
            knowledge=Knowledge.MEASURED,
            phases={Phase.FORWARD: whole / 3, Phase.BACKWARD: 2 * whole / 3, Phase.OPTIMIZER: 0.0},
            device_seconds=self.device_seconds,
            host_seconds=whole,
            waiting_seconds=self.waiting_seconds,
            unmodelled=(),
            modelled_share=1.0,
            binding={
                Binding.ARITHMETIC: self.arithmetic_share * self.device_seconds,
                Binding.BANDWIDTH: (1 - self.arithmetic_share) * self.device_seconds,
                Binding.SIZE: 0.0,
            },
        )

    def priced_all(self, graphs: Sequence[Graph], device: Device) -> tuple[PricedStep, ...]:
        raise InvalidRequest("a clock knows whole steps only")
