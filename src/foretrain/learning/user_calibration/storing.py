"""Fits and profiles as calibrations that predictions use."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import date
from statistics import fmean, stdev
from typing import Any

import numpy as np

from foretrain.learning.user_calibration.catalogue import device_name, version
from foretrain.learning.user_calibration.fitting import WorkerFit
from foretrain.prediction.corrections.files import (
    KINDS_OF_OPERATORS,
    WORKERS,
    CalibrationFile,
    calibration_for,
    keep_calibration,
    name_of,
)
from foretrain.prediction.corrections.kinds import KindTimes, ProfiledModel, profiles_of
from foretrain.prediction.corrections.workers import WorkerCalibration

_P90 = 1.2815515655446004
_LARGEST_SPREAD = 3.0


def keep_workers(fit: WorkerFit, device_id: str, versions: Mapping[str, str]) -> CalibrationFile:
    """Store the constants of a machine that were fitted to runs."""
    fitted_on = {"runs": fit.samples, "models": list(fit.models), "held out": list(fit.held_out_models)}
    known = fit.calibration
    return kept_workers(known, device_id, versions, fitted_on, fit.samples, known.spread)


def kept_workers(
    known: WorkerCalibration,
    device_id: str,
    versions: Mapping[str, str],
    fitted_on: Mapping[str, Any],
    samples: int,
    spread: float,
) -> CalibrationFile:
    """Store constants of a machine with what they were fitted on."""
    calibration = CalibrationFile(
        name=name_of(WORKERS, device_id),
        kind=WORKERS,
        device=device_id,
        device_name=device_name(device_id),
        created_on=date.today().isoformat(),
        foretrain=version(),
        software={"python": platform.python_version(), "numpy": np.__version__, **versions},
        fitted_on=fitted_on,
        samples=samples,
        residual_spread=min(spread, _LARGEST_SPREAD),
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
    calibration = CalibrationFile(
        name=name_of(KINDS_OF_OPERATORS, device_id),
        kind=KINDS_OF_OPERATORS,
        device=device_id,
        device_name=device_name(device_id),
        created_on=date.today().isoformat(),
        foretrain=version(),
        software={"python": platform.python_version(), "numpy": np.__version__, **versions},
        fitted_on={"profiles": [f"{each.model}, batch {each.batch}" for each in profiles]},
        samples=sum(len(each.kinds) for each in profiles),
        residual_spread=min(_spread(profiles), _LARGEST_SPREAD),
        content={"profiles": [asdict(each) for each in profiles]},
    )
    keep_calibration(calibration)
    return calibration


def _spread(profiles: Sequence[ProfiledModel]) -> float:
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
