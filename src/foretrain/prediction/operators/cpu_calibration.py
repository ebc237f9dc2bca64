"""What was learned of a CPU, as `foretrain calibrate --here` keeps it in the user's own folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from foretrain.errors import InvalidData, MissingData
from foretrain.facts.devices import Device
from foretrain.facts.user_data import user_data_dir, write_atomically

FORMAT = 1


@dataclass(frozen=True)
class FamilyFit:
    """Seconds per term of one family of operators, and how far off they were on shapes left out.

    `p10` and `p90` are quantiles of measured / predicted, each shape predicted by a fit to the others.
    """

    seconds_per: Mapping[str, float]
    cases: int
    mean_absolute_error: float
    p10: float
    p90: float


@dataclass(frozen=True)
class CpuCalibration:
    """What a CPU's operators take.

    The peaks are the best any operator reached, bytes in any cache and in memory: no prediction is faster.
    `seconds_per_fresh_byte` is what
    memory costs that the system maps anew. `threads` and `software` say what was timed.
    """

    device_id: str
    threads: int
    flop_per_second: float
    bytes_per_second: float
    memory_bytes_per_second: float
    cache_bytes: float
    seconds_per_fresh_byte: float
    families: Mapping[str, FamilyFit]
    software: Mapping[str, str]
    measured_on: str


def calibration_file(device_id: str) -> Path:
    """Where the calibration of a CPU is kept."""
    return user_data_dir() / "calibrations" / f"cpu-{device_id}.json"


def keep(calibration: CpuCalibration) -> Path:
    """Store a calibration, replacing the one before whole or not at all."""
    file = calibration_file(calibration.device_id)
    write_atomically(file, json.dumps({"format": FORMAT, **asdict(calibration)}, indent=1) + "\n")
    return file


def calibration_of(device: Device) -> CpuCalibration:
    """The calibration of a CPU; one that was never calibrated raises `MissingData`."""
    file = calibration_file(device.id)
    try:
        changed = file.stat().st_mtime_ns
    except FileNotFoundError:
        what = "this machine's CPU: run `foretrain calibrate --here`"
        other = f"{device.id} has not been timed; only the machine's own CPU can be, as the device `here`: "
        sentence = "nothing was timed on " + what if device.id == "here" else (
            other + "run `foretrain calibrate --here` on it, then predict with --on here"
        )  # fmt: skip
        raise MissingData(sentence) from None
    return _read(file, changed)


@lru_cache(maxsize=4)
def _read(file: Path, changed: int) -> CpuCalibration:
    del changed  # part of the key: a file written anew is read anew
    try:
        raw: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if raw.pop("format") != FORMAT:
            raise ValueError("another version of foretrain wrote it")
        raw["families"] = {name: FamilyFit(**content) for name, content in raw["families"].items()}
        return CpuCalibration(**raw)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        problem = f"cannot be read ({error}); run `foretrain calibrate --here` again"
        raise InvalidData(str(file), problem) from error
