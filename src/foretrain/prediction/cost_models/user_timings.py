"""Training steps that a user timed (`foretrain calibrate TIMINGS.csv`), and the corrections that follow.

The logarithm of measured over predicted time is modelled as a sum of errors of the device, of the model, of
their combination, and of the configuration:

    r = a_device + b_model + c_(device, model) + e

each normal around zero, with variances fitted to public steps of many models on many GPUs. The correction of
another step is the conditional mean given all timings (best linear unbiased prediction),

    r* = kᵀ K⁻¹ r        var* = k** - kᵀ K⁻¹ k

The same model on the same device has the largest weight (with two or more timings it alone counts); a step
that was itself timed takes its own time. The same model on another device counts to the extent that model
errors carry over between devices (the question of Habitat, G. Yu et al., ATC 2021). Other models on the same
device count by their number. Ratios far beyond the variances say more about their own configuration than
about others, so for others they count as two and a half standard deviations (winsorised).

Reference: C. R. Henderson, "Best linear unbiased estimation and prediction under a selection model",
Biometrics 31, 1975.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from foretrain.errors import InvalidData
from foretrain.facts.sheets import data_root
from foretrain.facts.user_data import user_data_dir, write_atomically
from foretrain.prediction.operators.listing import Flags, Floats

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Configuration:
    """A timed configuration; None is the default of the model or of foretrain."""

    model: str
    device: str
    batch: int
    precision: str | None = None
    seq_len: int | None = None
    image_size: int | None = None
    optimizer: str | None = None
    attention: str | None = None
    channels_last: bool = False
    compile: bool = False


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """The measured time of a step, and its prediction without this measurement."""

    configuration: Configuration
    step_seconds: float
    predicted_seconds: float

    @property
    def log_ratio(self) -> float:
        """log(measured / predicted)."""
        return math.log(self.step_seconds / self.predicted_seconds)


def measurements_file() -> Path:
    """The file of the stored timings."""
    return user_data_dir() / "measurements.json"


def measured_steps() -> tuple[MeasuredStep, ...]:
    """All stored timings."""
    file = measurements_file()
    try:
        raw: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if raw["format"] != FORMAT:
            raise ValueError("another version of foretrain wrote it")
        return tuple(_step(item) for item in raw["steps"])
    except FileNotFoundError:
        return ()
    except (ValueError, KeyError, TypeError) as error:
        problem = f"cannot be read ({error}); fix or remove it, then calibrate again"
        raise InvalidData(str(file), problem) from error


def _step(item: dict[str, Any]) -> MeasuredStep:
    step = MeasuredStep(
        Configuration(**item["configuration"]), item["step_seconds"], item["predicted_seconds"]
    )
    if not (step.step_seconds > 0 and step.predicted_seconds > 0):
        raise ValueError(f"the times of a step of {step.configuration.model} must be above 0")
    return step


def keep_only(steps: Iterable[MeasuredStep]) -> None:
    """Store these steps and no others; none at all removes the file."""
    kept = [asdict(step) for step in steps]
    if not kept:
        measurements_file().unlink(missing_ok=True)
        return
    write_atomically(measurements_file(), json.dumps({"format": FORMAT, "steps": kept}, indent=1) + "\n")


def remember(steps: Iterable[MeasuredStep]) -> tuple[MeasuredStep, ...]:
    """Store steps, each replacing one of the same configuration; returns all stored steps."""
    known = {step.configuration: step for step in measured_steps()}
    known |= {step.configuration: step for step in steps}
    keep_only(known.values())
    return tuple(known.values())


FILE = "transfer.json"
SOURCE = "your own timings"
_ENOUGH_FOR_SPREAD = 2
_MOST_DEVIATIONS = 2.5
_SAME_PREDICTION = 1e-3
"""Relative difference below which two predictions of a model on a device are of the same configuration."""


@dataclass(frozen=True, slots=True)
class VarianceComponents:
    """Variances of log(measured / predicted): of devices, models, their combination, and the remainder."""

    device: float
    model: float
    interaction: float
    noise: float

    @property
    def total(self) -> float:
        """The variance of a step without related measurements."""
        return self.device + self.model + self.interaction + self.noise


@dataclass(frozen=True, slots=True)
class Correction:
    """The correction of a step by timings: its time is `factor` times the prediction.

    `narrowing` is the width of the interval relative to that of the prediction alone; `spread` the standard
    deviation of the logarithm, if there are at least two timings of the model on the device.
    """

    factor: float
    narrowing: float
    spread: float | None
    is_measured: bool
    basis: str


@cache
def shipped_components() -> VarianceComponents | None:
    """The variances fitted to public steps; None if the package does not contain them."""
    file = data_root() / "calibrations" / FILE
    if not file.is_file():
        return None
    raw = json.loads(file.read_text(encoding="utf-8"))["variance"]
    return VarianceComponents(**raw)


def correction(
    model: str,
    device_id: str,
    steps: Sequence[MeasuredStep],
    components: VarianceComponents | None,
) -> Correction | None:
    """The correction of `model` on `device_id` by timed steps; None without related timings.

    Without components only steps of the same model on the same device are used.
    """
    same = [step for step in steps if _is(step, model, device_id)]
    if components is None:
        if not same:
            return None
        factor = math.exp(fmean(step.log_ratio for step in same))
        return Correction(factor, 1.0, _spread(same), True, _basis(same, [], []))
    model_elsewhere = [step for step in steps if _is(step, model, None) and step not in same]
    others_here = [step for step in steps if _is(step, None, device_id) and step not in same]
    if not (same or model_elsewhere or others_here):
        return None
    counted = [step if step in same else _winsorised(step, components) for step in steps]
    mean, variance = _conditional(model, device_id, counted, components)
    if len(same) >= _ENOUGH_FOR_SPREAD:
        mean = fmean(step.log_ratio for step in same)
    return Correction(
        factor=math.exp(mean),
        narrowing=math.sqrt((variance + components.noise) / components.total),
        spread=_spread(same),
        is_measured=bool(same),
        basis=_basis(same, model_elsewhere, others_here),
    )


def _winsorised(step: MeasuredStep, components: VarianceComponents) -> MeasuredStep:
    """A step with its ratio within what the variances make likely."""
    most = _MOST_DEVIATIONS * math.sqrt(components.total)
    bounded = min(max(step.log_ratio, -most), most)
    return replace(step, step_seconds=step.predicted_seconds * math.exp(bounded))


def _is(step: MeasuredStep, model: str | None, device: str | None) -> bool:
    known = step.configuration
    return (model is None or known.model == model) and (device is None or known.device == device)


def _spread(same: Sequence[MeasuredStep]) -> float | None:
    """Standard deviation of a further configuration: of the timings and of their mean."""
    if len(same) < _ENOUGH_FOR_SPREAD:
        return None
    return stdev(step.log_ratio for step in same) * math.sqrt(1 + 1 / len(same))


def _basis(*groups: Sequence[MeasuredStep]) -> str:
    names = (
        "of this model on this device",
        "of this model on other devices",
        "of other models on this device",
    )
    counts = [f"{len(group)} {name}" for group, name in zip(groups, names, strict=True) if group]
    return f"{SOURCE}: {', '.join(counts)}"


def _conditional(
    model: str, device: str, steps: Sequence[MeasuredStep], components: VarianceComponents
) -> tuple[float, float]:
    """Mean and variance of the log residual of (model, device), without noise."""
    models = np.array([step.configuration.model for step in steps])
    devices = np.array([step.configuration.device for step in steps])
    ratios = np.array([step.log_ratio for step in steps])
    same_model, same_device = models[:, None] == models[None, :], devices[:, None] == devices[None, :]
    between = _covariance(same_model, same_device, components) + components.noise * np.eye(len(steps))
    towards = _covariance(models == model, devices == device, components)
    weights = np.linalg.lstsq(between, towards, rcond=None)[0]
    variance = components.total - components.noise - float(towards @ weights)
    return float(weights @ ratios), max(0.0, variance)


def _covariance(same_model: Flags, same_device: Flags, components: VarianceComponents) -> Floats:
    covariance: Floats = components.model * same_model + components.device * same_device
    return covariance + components.interaction * (same_model & same_device)


def user_correction(model: str, device_id: str) -> Correction | None:
    """The correction of `model` on `device_id` by the stored timings; None without related timings."""
    return correction(model, device_id, measured_steps(), shipped_components())


def measured_ratio(model: str, device_id: str, predicted_seconds: float) -> float | None:
    """Measured over predicted time of the very step that is predicted; None if it was not timed.

    A timing of the same model on the same device with the same prediction is of the same configuration.
    """
    ratios = [
        step.log_ratio
        for step in measured_steps()
        if _is(step, model, device_id)
        and abs(math.log(step.predicted_seconds / predicted_seconds)) < _SAME_PREDICTION
    ]
    return math.exp(fmean(ratios)) if ratios else None
