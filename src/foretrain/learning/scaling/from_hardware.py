"""What a prediction from model and hardware says of a job's placements, to be corrected by its timings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from foretrain.errors import InvalidRequest
from foretrain.facts.hardware import Hardware
from foretrain.learning.scaling.configurations import Configuration, Placement
from foretrain.prediction.cost_models.step_models import OperatorCostModel
from foretrain.prediction.evaluation import Evaluation, evaluate
from foretrain.prediction.predict import configured
from foretrain.prediction.scenario import Parallelism, step_context
from foretrain.prediction.step.input_pipeline import InputOptions
from foretrain.workloads.workload import Workload

_DEVIATIONS = 2.563
"""Between the 10th and the 90th percentile of a normal distribution lie this many standard deviations."""


@dataclass(frozen=True)
class PredictedJob:
    """A workload on hardware, whose nodes are filled as a placement says; uneven ones as their fullest."""

    workload: Workload
    hardware: Hardware
    parallelism: Parallelism

    @property
    def devices_per_node(self) -> int:
        """What a full node holds."""
        return self.hardware.node.devices if self.hardware.node else self.hardware.devices_per_node

    def seconds(self, placement: Placement, batch: int) -> float:
        """A step of `batch` samples for each device."""
        return self._outcome(placement, batch).seconds

    def error(self, configurations: Sequence[Configuration]) -> float:
        """Standard deviation of the predictions' errors, in logarithms: the widest of some intervals."""
        widest = 0.0
        for each in configurations:
            total = self._outcome(each.placement, each.batch).total.quantiles
            widest = max(widest, math.log(total.p90 / max(total.p10, total.p50 / 10)) / _DEVIATIONS)
        return widest

    def _outcome(self, placement: Placement, batch: int) -> Evaluation:
        hardware = self._filled(placement)
        workload = self.workload.at(batch=batch)
        even = replace(
            self.parallelism, jitter=self.parallelism.jitter or 0.0
        )  # timings show how uneven they are
        context = step_context(workload, hardware, even, OperatorCostModel(), InputOptions())
        return evaluate(context, configured(context, self.parallelism))

    def _filled(self, placement: Placement) -> Hardware:
        hardware, most = self.hardware, self.devices_per_node
        if placement.fullest > most:
            raise InvalidRequest(
                f"placement {placement} has {placement.fullest} devices on a node, {hardware.name} {most}; "
                f"give `on` with at least {placement.fullest} per node"
            )
        name = f"{hardware.device.id}:{placement.fullest}x{placement.nodes}"
        return replace(hardware, name=name, devices_per_node=placement.fullest, nodes=placement.nodes)
