"""Cost models of a step on one device, given to `predict` by name or as an object.

`OperatorCostModel` prices the operators one by one. Other models predict whole steps only, such as a
regression on a user's own timings; they are defined where they are fitted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, final

from foretrain.facts.devices import Device
from foretrain.prediction.cost_models.kind_corrections import KindCorrections, kind_corrections, with_kinds
from foretrain.prediction.cost_models.priced_step import (
    PricedStep,
    StepEstimate,
    TimingEvidence,
    price_steps,
    step_estimate,
)
from foretrain.prediction.cost_models.user_timings import Correction, corrections
from foretrain.prediction.operators import mixed_precision
from foretrain.prediction.operators.host import HostModel, host_model
from foretrain.prediction.operators.pricing import DEFAULT, Knowledge, operator_models
from foretrain.workloads.graph import Graph
from foretrain.workloads.workload import Workload

NO_HOST = HostModel(
    forward_seconds=0.0,
    library_seconds=0.0,
    backward_seconds=0.0,
    optimizer_seconds=0.0,
    compiled_call_seconds=0.0,
    compiled_kernel_seconds=0.0,
    compiled_library_seconds=0.0,
    captured_seconds=0.0,
    p10=1.0,
    p90=1.0,
    source="none",
)
"""A host without launch overhead, for models that do not model it."""


class CostModel(ABC):
    """Estimates the time of one training step on one device.

    `knows_operators` False: only whole steps on one device can be predicted, not parallel ones.
    """

    knows_operators: ClassVar[bool] = True

    @abstractmethod
    def priced_all(self, graphs: Sequence[Graph], device: Device) -> tuple[PricedStep, ...]:
        """The operators of steps with their times.

        Steps that differ only in their batch are priced much faster together than one by one.
        """

    @final
    def priced(self, graph: Graph, device: Device) -> PricedStep:
        """The operators of one step with their times."""
        return self.priced_all((graph,), device)[0]

    @final
    def estimate(self, graph: Graph, device: Device) -> StepEstimate:
        """The time of a step."""
        return step_estimate(self.priced(graph, device))


@dataclass(frozen=True)
class OperatorCostModel(CostModel):
    """Operators priced by the models of a name in `operators.pricing`, launched by a host.

    `host` None: the calibrated host for the default models on a GPU. Other models are used as published,
    without a host; on a CPU the call is part of the price of an operator.
    """

    choice: str = DEFAULT
    host: HostModel | None = None

    def priced_all(self, graphs: Sequence[Graph], device: Device) -> tuple[PricedStep, ...]:
        """The operators of steps with their times."""
        models = operator_models(device, self.choice)
        is_corrected = self.choice == DEFAULT
        corrections = [
            mixed_precision.correction(graph, device) if is_corrected else None for graph in graphs
        ]
        steps = price_steps(graphs, device, models, self.host or self._host(device), corrections)
        return tuple(replace(step, is_shipped=is_corrected) for step in steps)

    def _host(self, device: Device) -> HostModel:
        is_launched = self.choice == DEFAULT and device.kind != "cpu"
        return host_model(device) if is_launched else NO_HOST


@dataclass(frozen=True)
class CorrectedCostModel(CostModel):
    """The steps of another cost model, corrected by the user's own profiles and timings."""

    inner: CostModel
    model: str

    def priced_all(self, graphs: Sequence[Graph], device: Device) -> tuple[PricedStep, ...]:
        """The operators of steps, by kind as profiled on the device; timings of whole steps come last.

        A profile divides a step among its kinds of operators, a timing of the model decides on the whole.
        """
        steps = self.inner.priced_all(graphs, device)
        kinds = kind_corrections(self.model, device.id)
        known = corrections(self.model, device, steps)
        timings: Sequence[Correction | None] = known or [None] * len(steps)
        return tuple(_with_both(step, kinds, timing) for step, timing in zip(steps, timings, strict=True))


def _with_both(step: PricedStep, kinds: KindCorrections | None, timing: Correction | None) -> PricedStep:
    """A step corrected by profiles and by timings; a timing is relative to the step without profiles."""
    profiled = step if kinds is None else with_kinds(step, kinds)
    if timing is None or (kinds is not None and not timing.is_measured):
        return profiled
    if kinds is None:
        return corrected(step, timing)
    plain, now = step_estimate(step).seconds, step_estimate(profiled).seconds
    return corrected(profiled, replace(timing, factor=timing.factor * plain / now if now else 1.0))


def corrected(step: PricedStep, correction: Correction) -> PricedStep:
    """A step with corrected times and a narrower interval."""
    return replace(step.scale(correction.factor), evidence=timing_evidence(correction))


def timing_evidence(correction: Correction) -> TimingEvidence:
    """What a correction says of a step."""
    known = Knowledge.MEASURED if correction.is_measured else None
    return TimingEvidence(correction.basis, known, correction.narrowing)


def cost_model(model: CostModel | str, workload: Workload) -> CostModel:
    """The cost model of a name; the default model is corrected by the user's timings."""
    if not isinstance(model, str):
        return model
    steps = OperatorCostModel(model)
    return CorrectedCostModel(steps, workload.source.name) if model == DEFAULT else steps
