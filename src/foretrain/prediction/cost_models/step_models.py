"""Ways to tell the time of a step on one device: swappable, and handed to `predict` by name or as an object.

Most price the operators one by one (`OperatorCostModel`). Others know whole steps only, such as a regression on a
user's own timings; they live where they are learned and are handed in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

from foretrain.facts.devices import Device
from foretrain.prediction.cost_models.priced_step import PricedStep, StepEstimate, price_steps, step_estimate
from foretrain.prediction.cost_models.user_timings import corrected, measured_steps
from foretrain.prediction.operators import mixed_precision
from foretrain.prediction.operators.catalogue import DEFAULT, operator_models
from foretrain.prediction.operators.host import HostModel, host_model
from foretrain.workloads.graph import Graph
from foretrain.workloads.workload import Workload

NO_HOST = HostModel(
    forward_seconds=0.0,
    backward_seconds=0.0,
    optimizer_seconds=0.0,
    view_seconds=0.0,
    kernel_seconds=0.0,
    compiled_share=1.0,
    p10=1.0,
    p90=1.0,
    source="none",
)
"""A host that launches in no time: what models that know nothing of launching take."""


class CostModel(ABC):
    """Tells the time of one training step on one device."""

    @abstractmethod
    def estimate(self, graph: Graph, device: Device) -> StepEstimate:
        """The time of a step."""

    @abstractmethod
    def priced_all(self, graphs: Sequence[Graph], device: Device) -> tuple[PricedStep, ...]:
        """The operators of steps with their times; a model of whole steps raises `InvalidRequest`.

        Steps alike but for their batch are told much faster together than one by one.
        """

    @final
    def priced(self, graph: Graph, device: Device) -> PricedStep:
        """The operators of one step with their times."""
        return self.priced_all((graph,), device)[0]


@dataclass(frozen=True)
class OperatorCostModel(CostModel):
    """Operators priced by the models a name of `operators.catalogue` stands for, launched by a host.

    `host` None: the calibrated one for the default models on a GPU. The others are told as published, without
    a host, and a CPU launches nothing: what a call costs it is part of the operator's price.
    """

    choice: str = DEFAULT
    host: HostModel | None = None

    def estimate(self, graph: Graph, device: Device) -> StepEstimate:
        """The time of a step."""
        return step_estimate(self.priced(graph, device))

    def priced_all(self, graphs: Sequence[Graph], device: Device) -> tuple[PricedStep, ...]:
        """The operators of steps with their times."""
        models = operator_models(device, self.choice)
        is_corrected = self.choice == DEFAULT
        corrections = [
            mixed_precision.correction(graph, device) if is_corrected else None for graph in graphs
        ]
        return price_steps(graphs, device, models, self.host or self._host(device), corrections)

    def _host(self, device: Device) -> HostModel:
        is_told = self.choice == DEFAULT and device.kind != "cpu"
        return host_model(device) if is_told else NO_HOST


@dataclass(frozen=True)
class CorrectedCostModel(CostModel):
    """Another model's steps in the light of the user's own timings: of this model, this device, or both."""

    inner: CostModel
    model: str

    def estimate(self, graph: Graph, device: Device) -> StepEstimate:
        """The time of a step."""
        told = self.inner.estimate(graph, device)
        estimate, knowledge, basis = corrected(told.estimate, self.model, device.id)
        if not basis:
            return told
        factor = estimate.value / told.estimate.value
        return replace(
            told,
            estimate=estimate,
            knowledge=knowledge or told.knowledge,
            phases={phase: factor * seconds for phase, seconds in told.phases.items()},
            device_seconds=factor * told.device_seconds,
            host_seconds=factor * told.host_seconds,
            waiting_seconds=factor * told.waiting_seconds,
            binding={name: factor * seconds for name, seconds in told.binding.items()},
            basis=basis,
        )

    def priced_all(self, graphs: Sequence[Graph], device: Device) -> tuple[PricedStep, ...]:
        """The operators of steps, all of a step corrected by the same factor."""
        steps = self.inner.priced_all(graphs, device)
        return tuple(self._corrected(step, device) for step in steps) if measured_steps() else steps

    def _corrected(self, step: PricedStep, device: Device) -> PricedStep:
        told = step_estimate(step).estimate
        estimate, _, basis = corrected(told, self.model, device.id)
        return step.scale(estimate.value / told.value, basis) if basis else step


def cost_model(model: CostModel | str, workload: Workload) -> CostModel:
    """The step model of a name; foretrain's own listens to the user's timings."""
    if not isinstance(model, str):
        return model
    steps = OperatorCostModel(model)
    return CorrectedCostModel(steps, workload.source.name) if model == DEFAULT else steps
