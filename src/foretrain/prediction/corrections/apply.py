"""Where the user's own measurements correct predictions: profiles, timings of steps, runs of CPU workers.

A profile divides a step among its kinds of operators; a timing of the model decides on the whole. Steps on
one device are corrected by the cost model, before they are composed. A step on several devices is corrected
as a whole where the user timed such steps. Steps of CPU workers follow the machine's own runs.

A profile has the measured and the predicted seconds of each kind of operator in each phase. The same model
takes its own ratios. Another model takes the mean ratio of all profiles of the device, shrunk by their number
n, since part of a ratio is due to the shapes of the profiled model:

    log f = n / (n + 1) · mean log(measured / predicted),   within two and a half deviations of the kind
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrain.estimates import Z90, Estimate
from foretrain.facts.devices import Device
from foretrain.facts.hardware import Hardware
from foretrain.persisted import restore
from foretrain.prediction.corrections.files import KINDS_OF_OPERATORS, calibration_for, measurements_file
from foretrain.prediction.cost_models import (
    CostModel,
    OperatorCostModel,
    PricedStep,
    TimingEvidence,
    narrow,
    step_estimate,
)
from foretrain.prediction.operators.pricing import DEFAULT, Confidence, Knowledge
from foretrain.prediction.step.parallel import ParallelStep, StepEnvironment
from foretrain.workloads.graph import Graph, Phase
from foretrain.workloads.ops import Kind
from foretrain.workloads.workload import Workload

if TYPE_CHECKING:
    from foretrain.prediction.corrections.error_model import StepError
    from foretrain.prediction.corrections.timings import Correction


SOURCE = "your own profiles"
MICRO_BENCHMARKS = "micro-benchmarks"
"""The model of a profile that is no model's: operators timed one by one."""
_MOST_DEVIATIONS = 2.5
_LEAST_SPREAD = 0.1
# Logarithm; predictions this close are of the same step, whose measured time is then used.
_SAME_PREDICTION = 1e-3
_REPEATED_STEP = 0.05
"""Standard deviation of the logarithm of a profiled step at other sizes, or measured again."""


def resolve_cost_model(model: CostModel | str, workload: Workload) -> CostModel:
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

    def price_all(self, graphs: Sequence[Graph], device: Device) -> tuple[PricedStep, ...]:
        """The operators of steps, by kind as profiled on the device; timings of whole steps come last."""
        steps = self.inner.price_all(graphs, device)
        kinds = kind_corrections(self.model, device.id)
        timings: Sequence[Correction | None] = [None] * len(steps)
        if measurements_file().exists():
            from foretrain.prediction.corrections.timings import corrections

            timings = corrections(self.model, device, steps) or timings
        return tuple(_with_both(step, kinds, timing) for step, timing in zip(steps, timings, strict=True))


def _with_both(step: PricedStep, kinds: KindCorrections | None, timing: Correction | None) -> PricedStep:
    """A step corrected by profiles and by timings; a timing is relative to the step without profiles."""
    profiled = step if kinds is None else with_kinds(step, kinds)
    # Profiles of this device say more of a step than timings of other steps do, a timing of this step most.
    if timing is None or (kinds is not None and not timing.is_measured):
        return profiled
    if kinds is None:
        return correct_step(step, timing)
    # The factor of a timing is relative to the plain step: what profiles changed is taken out of it.
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


@dataclass(frozen=True, slots=True)
class KindTimes:
    """Measured and predicted seconds of a kind of operator in a phase."""

    phase: Phase
    kind: Kind
    measured_seconds: float
    predicted_seconds: float

    def __post_init__(self) -> None:
        if not (self.measured_seconds > 0 and self.predicted_seconds > 0):
            raise ValueError(f"the times of {self.kind} operators must be above 0")

    @property
    def log_ratio(self) -> float:
        """log(measured / predicted)."""
        return math.log(self.measured_seconds / self.predicted_seconds)


@dataclass(frozen=True)
class ProfiledModel:
    """A profile of a model: its kinds of operators, and the whole step; 0 where only operators were timed."""

    model: str
    batch: int
    measured_seconds: float
    predicted_seconds: float
    kinds: tuple[KindTimes, ...]


@dataclass(frozen=True)
class KindCorrections:
    """Corrections for one model: log ratios by phase and kind, and how many profiles they rest on.

    `is_own`: they are the model's own. `steps` are its profiled steps as pairs of predicted and measured
    seconds.
    """

    log_ratios: Mapping[tuple[Phase, Kind], float]
    profiles: int
    is_own: bool
    steps: tuple[tuple[float, float], ...] = ()

    @property
    def basis(self) -> str:
        """What they rest on, in words."""
        of = "of this model" if self.is_own else "of other models"
        return f"{SOURCE} on this device: {self.profiles} {of}"


def profiles_of(content: Mapping[str, Any]) -> tuple[ProfiledModel, ...]:
    """Profiles from the content of a calibration file; malformed content raises ValueError or the like."""
    return tuple(restore(ProfiledModel, each, "a profile") for each in content["profiles"])


def kind_corrections(model: str, device_id: str) -> KindCorrections | None:
    """The corrections of a model on a device by the stored profiles; None without any of the device."""
    stored = calibration_for(KINDS_OF_OPERATORS, device_id)
    return None if stored is None else corrections_by(model, profiles_of(stored.content))


def corrections_by(model: str, profiles: Sequence[ProfiledModel]) -> KindCorrections | None:
    """The corrections of a model by profiles of one device."""
    own = [profile for profile in profiles if profile.model == model]
    used = own or list(profiles)
    if not used:
        return None
    ratios: dict[tuple[Phase, Kind], list[float]] = {}
    for row in chain.from_iterable(profile.kinds for profile in used):
        ratios.setdefault((row.phase, row.kind), []).append(row.log_ratio)
    shrunk = {
        key: fmean(values) * (1.0 if own else len(values) / (len(values) + 1))
        for key, values in ratios.items()
    }
    steps = [(each.predicted_seconds, each.measured_seconds) for each in own if each.measured_seconds > 0]
    return KindCorrections(shrunk, len(used), bool(own), tuple(steps))


def with_kinds(step: PricedStep, corrections: KindCorrections) -> PricedStep:
    """A step with the times of its kinds of operators corrected; a profiled step has its measured time."""
    priced = step.priced
    factors = np.array([_factor(op.phase, op.work.kind, corrections, priced.confidence) for op in priced.ops])
    knowledge = Knowledge.MEASURED if corrections.is_own else Knowledge.CALIBRATED
    evidence = TimingEvidence(
        corrections.basis,
        knowledge,
        1 / math.sqrt(corrections.profiles + 1),
        _REPEATED_STEP if corrections.is_own else None,
    )
    changed = replace(step, priced=replace(priced, seconds=priced.seconds * factors), evidence=evidence)
    measured = _measured_seconds(step, corrections)
    return changed if measured is None else changed.scale(measured / step_estimate(changed).seconds)


def _factor(
    phase: Phase, kind: Kind, corrections: KindCorrections, trust: Mapping[Kind, Confidence]
) -> float:
    # A profiler sees the kernels of an update, whatever kinds of operator they are made of.
    group = Kind.OPTIMIZER if phase is Phase.OPTIMIZER else kind
    ratio = corrections.log_ratios.get((phase, group), 0.0)
    if corrections.is_own:
        return math.exp(ratio)
    known = trust.get(kind)
    spread = _LEAST_SPREAD
    if known is not None and known.p10 > 0:
        spread = max(spread, math.log(known.p90 / known.p10) / (2 * Z90))
    most = _MOST_DEVIATIONS * spread
    return math.exp(min(max(ratio, -most), most))


def _measured_seconds(step: PricedStep, corrections: KindCorrections) -> float | None:
    """The time of this very step if it was profiled: the one with the same prediction."""
    if not corrections.steps:
        return None
    plain = step_estimate(step).seconds
    return next(
        (
            measured
            for predicted, measured in corrections.steps
            if abs(math.log(predicted / plain)) < _SAME_PREDICTION
        ),
        None,
    )
