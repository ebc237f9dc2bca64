"""Corrections of kinds of operators on a device, from profiles of models on it.

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
from typing import Any

import numpy as np

from foretrain.persisted import restore
from foretrain.prediction.corrections.files import KINDS_OF_OPERATORS, calibration_for
from foretrain.prediction.cost_models import PricedStep, TimingEvidence, step_estimate
from foretrain.prediction.operators.pricing import Confidence, Knowledge
from foretrain.probability import Z90
from foretrain.workloads.graph import Phase
from foretrain.workloads.ops import Kind

SOURCE = "your own profiles"
MICRO_BENCHMARKS = "micro-benchmarks"
"""The model of a profile that is no model's: operators timed one by one."""
_MOST_DEVIATIONS = 2.5
_LEAST_SPREAD = 0.1
# Logarithm; predictions this close are of the same step, whose measured time is then used.
_SAME_PREDICTION = 1e-3
_REPEATED_STEP = 0.05
"""Standard deviation of the logarithm of a profiled step at other sizes, or measured again."""


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
