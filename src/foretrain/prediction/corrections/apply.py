"""Where the user's own measurements correct predictions: profiles, timings of steps, runs of CPU workers.

A profile divides a step among its kinds of operators; a timing of the model decides on the whole. Steps on
one device are corrected by the cost model, before they are composed. A step on several devices is corrected
as a whole where the user timed such steps. Steps of CPU workers follow the machine's own runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from foretrain.estimates import Estimate
from foretrain.facts.devices import Device
from foretrain.facts.hardware import Hardware
from foretrain.prediction.corrections.files import measurements_file
from foretrain.prediction.corrections.kinds import KindCorrections, kind_corrections, with_kinds
from foretrain.prediction.cost_models import (
    CostModel,
    OperatorCostModel,
    PricedStep,
    TimingEvidence,
    narrow,
    step_estimate,
)
from foretrain.prediction.operators.pricing import DEFAULT, Knowledge
from foretrain.prediction.step.parallel import ParallelStep, StepEnvironment
from foretrain.workloads.graph import Graph
from foretrain.workloads.workload import Workload

if TYPE_CHECKING:
    from foretrain.prediction.corrections.error_model import StepError
    from foretrain.prediction.corrections.timings import Correction


def cost_model(model: CostModel | str, workload: Workload) -> CostModel:
    """The cost model of a name; the default model is corrected by the user's timings."""
    if not isinstance(model, str):
        return model
    steps = OperatorCostModel(model)
    return CorrectedCostModel(steps, workload.source.name) if model == DEFAULT else steps


@dataclass(frozen=True)
class CorrectedCostModel(CostModel):
    """The steps of another cost model, corrected by the user's own profiles and timings."""

    inner: CostModel
    model: str

    def priced_all(self, graphs: Sequence[Graph], device: Device) -> tuple[PricedStep, ...]:
        """The operators of steps, by kind as profiled on the device; timings of whole steps come last."""
        steps = self.inner.priced_all(graphs, device)
        kinds = kind_corrections(self.model, device.id)
        timings: Sequence[Correction | None] = [None] * len(steps)
        if measurements_file().exists():
            from foretrain.prediction.corrections.timings import corrections

            timings = corrections(self.model, device, steps) or timings
        return tuple(_with_both(step, kinds, timing) for step, timing in zip(steps, timings, strict=True))


def _with_both(step: PricedStep, kinds: KindCorrections | None, timing: Correction | None) -> PricedStep:
    """A step corrected by profiles and by timings; a timing is relative to the step without profiles."""
    profiled = step if kinds is None else with_kinds(step, kinds)
    if timing is None or (kinds is not None and not timing.is_measured):
        return profiled
    if kinds is None:
        return correct_step(step, timing)
    plain, now = step_estimate(step).seconds, step_estimate(profiled).seconds
    return correct_step(profiled, replace(timing, factor=timing.factor * plain / now if now else 1.0))


def correct_step(step: PricedStep, correction: Correction) -> PricedStep:
    """A step with corrected times and a narrower interval."""
    return replace(step.scale(correction.factor), evidence=timing_evidence(correction))


def timing_evidence(correction: Correction) -> TimingEvidence:
    """What a correction says of a step."""
    known = Knowledge.MEASURED if correction.is_measured else None
    return TimingEvidence(correction.basis, known, correction.narrowing)


def correct_workers(
    step: ParallelStep, graph: Graph, micro_batches: int, hardware: Hardware, at: StepEnvironment
) -> ParallelStep:
    """A step of CPU workers as the machine's own runs predict it; unchanged where there are none."""
    if not at.device.is_cpu or not isinstance(at.model, CorrectedCostModel) or micro_batches > 1:
        return step
    from foretrain.prediction.corrections.workers import calibrate_step

    return calibrate_step(step, at.model.model, graph, hardware, at)


def with_timings(plain: ParallelStep, error: StepError, device: Device) -> ParallelStep | None:
    """A step on several devices, priced without timings, corrected as a whole; None without timings."""
    from foretrain.prediction.corrections.timings import corrections_of

    known = corrections_of([error], device)
    if known is None:
        return None
    factor, evidence = known[0].factor, timing_evidence(known[0])
    parts = narrow([part.scale(factor) for part in plain.estimate.parts], evidence)
    return replace(
        plain,
        estimate=Estimate("s", parts),
        run=plain.run.scale(factor),
        priced=replace(plain.priced, evidence=evidence),
    )
