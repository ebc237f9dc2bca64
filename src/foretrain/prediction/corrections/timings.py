"""Training steps that a user timed (`foretrain calibrate TIMINGS.csv`), and the corrections that follow.

Timings and their predictions are kept in the user's folder. What they say about other steps is the model of
`error_model`: the user's set-up first (one factor for host, framework and cluster), then device, precision,
options and model, each as far as one timing is informative. Single kernels are corrected by profiles alone
(`apply`). A step that was itself timed takes its own time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from foretrain.errors import InvalidData
from foretrain.facts.calibrations import load_calibration
from foretrain.facts.devices import Device, devices
from foretrain.facts.user_data import read_kept, write_atomically
from foretrain.persisted import read_json_object, restore
from foretrain.prediction.corrections.error_model import (
    Shift,
    StepError,
    StepKey,
    StepTraits,
    UserErrors,
    Variances,
    size_spreads,
    step_traits,
)
from foretrain.prediction.corrections.files import measurements_file
from foretrain.prediction.cost_models import PricedStep, step_estimate

FORMAT = 1
FILE = "transfer.json"
SOURCE = "your own timings"
_OPTIONS = ("compile", "channels_last", "cuda_graphs", "checkpoint_activations", "forward_only")
"""Options of a step that its errors may depend on, beside its precision."""


@dataclass(frozen=True, slots=True)
class TimedConfiguration:
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
    devices: str = "1"
    strategy: str | None = None
    micro_batches: int | None = None
    framework: str | None = None
    checkpoint_activations: bool = False

    @property
    def on(self) -> str:
        """The hardware as `predict` takes it."""
        return self.device if self.devices == "1" else f"{self.device}:{self.devices}"

    @property
    def is_on_several(self) -> bool:
        """Whether its time is of several devices or micro-batches together."""
        return self.devices != "1" or (self.micro_batches or 1) > 1


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """The measured time of a step, and its prediction without any measurement.

    `precision` and `variant` are what the step really ran in, defaults resolved; empty in files of versions
    that did not keep them. `traits` are what it spends its time on.
    """

    configuration: TimedConfiguration
    step_seconds: float
    predicted_seconds: float
    precision: str = ""
    variant: str = ""
    traits: StepTraits = field(default_factory=StepTraits)

    @property
    def log_ratio(self) -> float:
        """log(measured / predicted)."""
        return math.log(self.step_seconds / self.predicted_seconds)

    @property
    def error(self) -> StepError:
        """The step as the model of errors sees it."""
        known = self.configuration
        key = StepKey(known.model, known.device, self.precision, self.variant)
        return StepError(key, self.predicted_seconds, self.traits, self.log_ratio)


def measured_step(configuration: TimedConfiguration, step_seconds: float, step: StepError) -> MeasuredStep:
    """A timing beside the prediction of its step."""
    key = step.key
    return MeasuredStep(
        configuration, step_seconds, step.predicted_seconds, key.precision, key.variant, step.traits
    )


def priced_error(
    model: str,
    device: Device,
    step: PricedStep,
    seconds: float | None = None,
    exposed_share: float = 0.0,
    axes: Sequence[str] = (),
) -> StepError:
    """A priced step of a model as the model of errors sees it.

    `seconds` is its prediction if it is a part of a larger step, which waits `exposed_share` of its time for
    other devices and is divided along `axes`.
    """
    options = step.graph.options
    chosen = [name for name in _OPTIONS if getattr(options, name)]
    key = StepKey(model, device.id, options.precision, ", ".join([*chosen, options.framework, *axes]))
    predicted = step_estimate(step).seconds if seconds is None else seconds
    return StepError(key, predicted, step_traits(step, exposed_share))


def measured_steps() -> tuple[MeasuredStep, ...]:
    """All stored timings."""
    return read_kept(measurements_file(), _read) or ()


def _read(file: Path) -> tuple[MeasuredStep, ...]:
    raw = read_json_object(file, "a file of timings", "fix or remove it, then calibrate again")
    try:
        if raw.get("format") != FORMAT:
            raise ValueError("another version of foretrain wrote it")
        return tuple(step_from_plain(item) for item in raw["steps"])
    except (ValueError, KeyError, TypeError) as error:
        problem = f"cannot be read ({error}); fix or remove it, then calibrate again"
        raise InvalidData(str(file), problem) from error


def step_from_plain(item: Mapping[str, Any]) -> MeasuredStep:
    """A step from plain data; malformed data raises `ValueError`."""
    step = restore(MeasuredStep, item, "a step")
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


@dataclass(frozen=True, slots=True)
class Correction:
    """The correction of a step by timings: its time is `factor` times the prediction.

    `narrowing` is the width of the interval relative to that of the prediction alone; it is above 1 where the
    timings show larger errors than usual.
    """

    factor: float
    narrowing: float
    is_measured: bool
    basis: str


@cache
def shipped_variances() -> Variances:
    """The variances fitted to public steps."""
    return load_calibration(Variances, FILE, "variance")


def timings_on_several() -> bool:
    """Whether a stored timing is of several devices or micro-batches."""
    return any(step.configuration.is_on_several for step in measured_steps())


def corrections(
    model: str, device: Device, steps: Sequence[PricedStep], timings: Sequence[MeasuredStep] | None = None
) -> list[Correction] | None:
    """The corrections of priced steps of `model` on one `device`; None without timings."""
    related = _select_related(device, timings)
    return (
        corrections_of([priced_error(model, device, step) for step in steps], device, related)
        if related
        else None
    )


def corrections_of(
    steps: Sequence[StepError], device: Device, timings: Sequence[MeasuredStep] | None = None
) -> list[Correction] | None:
    """The corrections of steps on `device`; None without `timings`, by default the stored ones."""
    related = _select_related(device, timings)
    if not related or not steps:
        return None
    user = _user_errors(related)
    return [
        _correction(step, shift, user, related) for step, shift in zip(steps, user.shifts(steps), strict=True)
    ]


def _select_related(device: Device, timings: Sequence[MeasuredStep] | None) -> tuple[MeasuredStep, ...]:
    """Timings on devices of this kind: those of CPUs say nothing about GPUs, and the reverse."""
    known = devices()
    return tuple(
        timing
        for timing in (measured_steps() if timings is None else timings)
        if timing.configuration.device == device.id
        or (timing.configuration.device in known and known[timing.configuration.device].kind == device.kind)
    )


@lru_cache(maxsize=8)
def _user_errors(timings: tuple[MeasuredStep, ...]) -> UserErrors:
    return UserErrors([timing.error for timing in timings], shipped_variances())


def _correction(
    step: StepError, shift: Shift, user: UserErrors, timings: Sequence[MeasuredStep]
) -> Correction:
    of_model = [timing for timing in timings if timing.configuration.model == step.key.model]
    same = [timing for timing in of_model if timing.configuration.device == step.key.device]
    here = [timing for timing in timings if timing.configuration.device == step.key.device]
    counts = (
        (len(same), "of this model on this device"),
        (len(of_model) - len(same), "of this model on other devices"),
        (len(here) - len(same), "of other models on this device"),
        (len(timings) - len(of_model) - len(here) + len(same), "of other models on other devices"),
    )
    trust = user.trust_in_model if of_model else user.trust_elsewhere
    factor = math.exp(shift.log_factor)
    basis = (
        f"{SOURCE}: {', '.join(f'{count} {name}' for count, name in counts if count)}; "
        f"they change the time by {factor - 1:+.1%}, {trust:.0%} trusted"
    )
    again = (
        size_spreads().noise / shift.prior_deviation
    )  # a step that was timed varies when it is timed again
    is_measured = any(
        not timing.precision or (timing.precision, timing.variant) == (step.key.precision, step.key.variant)
        for timing in same
    )
    return Correction(factor, math.hypot(shift.narrowing, again), is_measured, basis)
