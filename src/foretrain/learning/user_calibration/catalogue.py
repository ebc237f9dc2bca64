"""All calibrations of a user by name: kept for predictions, listed, shown, forgotten, exported and imported.

Names are the kind and the device: `operators-here`, `timings-t4`, `kinds-rtx3090`, `workers-here`. Whatever
the file a calibration is kept in, it is listed and exported in one form.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrain.errors import InvalidData, InvalidRequest, MissingData, UnknownName
from foretrain.estimates import Z90
from foretrain.facts.devices import THIS_MACHINE, devices
from foretrain.prediction.corrections.apply import KindTimes, ProfiledModel, profiles_of
from foretrain.prediction.corrections.files import (
    KINDS_OF_OPERATORS,
    OPERATORS,
    TIMINGS,
    WORKERS,
    CalibrationFile,
    calibration_for,
    calibrations_dir,
    file_of,
    keep_calibration,
    measurements_file,
    name_of,
    read_calibration,
)
from foretrain.prediction.corrections.timings import (
    MeasuredStep,
    keep_only,
    measured_steps,
    remember,
    step_from_plain,
)
from foretrain.prediction.corrections.workers import WorkerCalibration, check_content
from foretrain.prediction.operators.cpu import (
    CpuCalibration,
    FamilyFit,
    calibration_file,
    calibration_of,
    keep,
)

if TYPE_CHECKING:
    from foretrain.learning.user_calibration.fitting import WorkerFit

_LARGEST_SPREAD = 3.0


def version() -> str:
    """The version of foretrain that writes a calibration."""
    from importlib.metadata import version as installed

    return installed("foretrain")


def device_name(device_id: str) -> str:
    """What a device is called; its id if it is not known."""
    known = devices()
    return known[device_id].name if device_id in known else device_id


def _calibration(
    kind: str,
    device_id: str,
    *,
    software: Mapping[str, str],
    fitted_on: Mapping[str, Any],
    samples: int,
    spread: float,
    content: Mapping[str, Any],
    created_on: str | None = None,
) -> CalibrationFile:
    """A calibration of a device, made today if nothing else is given."""
    return CalibrationFile(
        name=name_of(kind, device_id),
        kind=kind,
        device=device_id,
        device_name=device_name(device_id),
        created_on=created_on or date.today().isoformat(),
        foretrain=version(),
        software=software,
        fitted_on=fitted_on,
        samples=samples,
        residual_spread=min(spread, _LARGEST_SPREAD),
        content=content,
    )


def _software(versions: Mapping[str, str]) -> dict[str, str]:
    return {"python": platform.python_version(), "numpy": np.__version__, **versions}


def keep_workers(fit: WorkerFit, device_id: str, versions: Mapping[str, str]) -> CalibrationFile:
    """Store the constants of a machine that were fitted to runs."""
    fitted_on = {"runs": fit.samples, "models": list(fit.models), "held out": list(fit.held_out_models)}
    known = fit.calibration
    return keep_constants(known, device_id, versions, fitted_on, fit.samples, known.spread)


def keep_constants(
    known: WorkerCalibration,
    device_id: str,
    versions: Mapping[str, str],
    fitted_on: Mapping[str, Any],
    samples: int,
    spread: float,
) -> CalibrationFile:
    """Store constants of a machine with what they were fitted on."""
    calibration = _calibration(
        WORKERS,
        device_id,
        software=_software(versions),
        fitted_on=fitted_on,
        samples=samples,
        spread=spread,
        content={
            "constants": asdict(known.constants),
            "cores": known.cores,
            "model_spread": known.model_spread,
            "run_spread": known.run_spread,
            "models": {name: asdict(each) for name, each in known.models.items()},
            "settings": dict(known.settings),
            "strategies": sorted(known.strategies),
        },
    )
    keep_calibration(calibration)
    return calibration


def keep_profile(profile: ProfiledModel, device_id: str, versions: Mapping[str, str]) -> CalibrationFile:
    """Add a profile to those of a device, replacing one of the same model and batch."""
    stored = calibration_for(KINDS_OF_OPERATORS, device_id)
    others = [] if stored is None else [
        each for each in profiles_of(stored.content)
        if (each.model, each.batch) != (profile.model, profile.batch)
    ]  # fmt: skip
    profiles = [*others, profile]
    calibration = _calibration(
        KINDS_OF_OPERATORS,
        device_id,
        software=_software(versions),
        fitted_on={"profiles": [f"{each.model}, batch {each.batch}" for each in profiles]},
        samples=sum(len(each.kinds) for each in profiles),
        spread=_profile_spread(profiles),
        content={"profiles": [asdict(each) for each in profiles]},
    )
    keep_calibration(calibration)
    return calibration


def _profile_spread(profiles: Sequence[ProfiledModel]) -> float:
    """Between profiles of the same kind where there are several, else between kinds."""
    groups: dict[tuple[str, str], list[float]] = {}
    rows: list[KindTimes] = [row for profile in profiles for row in profile.kinds]
    for row in rows:
        groups.setdefault((row.phase, row.kind), []).append(row.log_ratio)
    spreads = [stdev(values) for values in groups.values() if len(values) > 1]
    if spreads:
        return fmean(spreads)
    ratios = [row.log_ratio for row in rows]
    return stdev(ratios) if len(ratios) > 1 else abs(ratios[0]) if ratios else math.log(2)


def calibrations() -> tuple[CalibrationFile, ...]:
    """All stored calibrations, by name."""
    return tuple(sorted(_stored(), key=lambda each: each.name))


def _stored() -> Iterator[CalibrationFile]:
    if calibration_file(THIS_MACHINE).exists() and THIS_MACHINE in devices():
        yield _of_operators(calibration_of(devices()[THIS_MACHINE]))
    timed = measured_steps()
    for device_id in sorted({step.configuration.device for step in timed}):
        yield _of_timings(device_id, [step for step in timed if step.configuration.device == device_id])
    for kind in (KINDS_OF_OPERATORS, WORKERS):
        for file in sorted(calibrations_dir().glob(f"{kind}-*.json")):
            yield read_calibration(file)


def calibration_named(name: str) -> CalibrationFile:
    """The stored calibration of a name."""
    known = {each.name: each for each in calibrations()}
    if name not in known:
        hint = (
            f"Stored: {', '.join(known)}."
            if known
            else "There is none yet; `foretrain calibrate` makes them."
        )
        raise UnknownName("calibration", name, known, hint)
    return known[name]


def forget(name: str) -> CalibrationFile:
    """Remove a calibration; later predictions are as if it had never been."""
    known = calibration_named(name)
    if known.kind == OPERATORS:
        calibration_file(known.device).unlink()
    elif known.kind == TIMINGS:
        keep_only(step for step in measured_steps() if step.configuration.device != known.device)
    else:
        file_of(name).unlink()
    return known


def import_calibration(file: Path) -> CalibrationFile:
    """Validate a calibration file and store it, replacing one of the same name."""
    given = read_calibration(file)
    expected = name_of(given.kind, given.device)
    if given.name != expected:
        raise InvalidData(
            str(file), f"is called {given.name!r}, but a calibration of its device is called {expected!r}"
        )
    _check_device(file, given)
    try:
        _IMPORTERS[given.kind](given)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidData(str(file), f"has incomplete content ({error}); export it again") from error
    return given


def _check_device(file: Path, given: CalibrationFile) -> None:
    known = devices()
    if given.device == THIS_MACHINE and THIS_MACHINE not in known:
        raise MissingData(
            "this machine is not known as a device yet; calibrate it, or measure it as a device, then import"
        )
    if given.device not in known:
        raise InvalidData(str(file), f"is for the device {given.device!r}, which is unknown here")
    own = known[given.device].name
    if given.device == THIS_MACHINE and own != given.device_name:
        raise InvalidRequest(f"{file} was made on {given.device_name!r}, but this machine is {own!r}")


def _import_operators(given: CalibrationFile) -> None:
    raw: dict[str, Any] = dict(given.content)
    raw["families"] = {name: FamilyFit(**content) for name, content in raw["families"].items()}
    calibration = CpuCalibration(**raw)
    if calibration.device_id != given.device or not calibration.families:
        raise ValueError("its operators are missing or of another device")
    rates = (calibration.flop_per_second, calibration.bytes_per_second, calibration.memory_bytes_per_second)
    if not all(math.isfinite(rate) and rate > 0 for rate in rates):
        raise ValueError(f"its rates must be above 0, but are {rates}")
    for name, fit in calibration.families.items():
        if any(not (math.isfinite(each) and each >= 0) for each in fit.seconds_per.values()):
            raise ValueError(f"{name} has times below 0")
    keep(calibration)


def _import_timings(given: CalibrationFile) -> None:
    steps = [step_from_plain(item) for item in given.content["steps"]]
    for step in steps:
        if step.configuration.device != given.device:
            raise ValueError(f"it has a step on {step.configuration.device}")
    remember(steps)


def _import_kinds(given: CalibrationFile) -> None:
    if not profiles_of(given.content):
        raise ValueError("it has no profiles")
    keep_calibration(given)


def _import_workers(given: CalibrationFile) -> None:
    check_content(given.content)
    keep_calibration(given)


_IMPORTERS: Mapping[str, Callable[[CalibrationFile], None]] = {
    OPERATORS: _import_operators,
    TIMINGS: _import_timings,
    KINDS_OF_OPERATORS: _import_kinds,
    WORKERS: _import_workers,
}


def _of_operators(known: CpuCalibration) -> CalibrationFile:
    fits = known.families.values()
    cases = [fit.cases for fit in fits]
    widths = [math.log(max(fit.p90, 1e-9) / max(fit.p10, 1e-9)) / (2 * Z90) for fit in fits]
    return _calibration(
        OPERATORS,
        known.device_id,
        created_on=known.measured_on,
        software=known.software,
        fitted_on={"micro-benchmarks": sum(cases), "threads": known.threads},
        samples=sum(cases),
        spread=float(np.average(widths, weights=cases)),
        content=asdict(known),
    )


def _of_timings(device_id: str, steps: list[MeasuredStep]) -> CalibrationFile:
    ratios = [step.log_ratio for step in steps]
    changed = datetime.fromtimestamp(measurements_file().stat().st_mtime, UTC)
    return _calibration(
        TIMINGS,
        device_id,
        created_on=changed.date().isoformat(),
        software={},
        fitted_on={"models": sorted({step.configuration.model for step in steps})},
        samples=len(steps),
        spread=stdev(ratios) if len(ratios) > 1 else 0.0,
        content={"steps": [asdict(step) for step in steps]},
    )
