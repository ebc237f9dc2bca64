"""Calibrations as files: portable, versioned, validated when they are read.

A calibration states its kind, the device it is for, what it was fitted on, with which software, on how many
samples, and the spread of what remains unexplained. Its content depends on its kind. All calibrations of a
user are in the folder `calibrations` of the user's data; removing a file restores the predictions without it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from foretrain.errors import InvalidData, InvalidRequest, MissingData
from foretrain.facts.user_data import read_kept, user_data_dir, write_atomically
from foretrain.persisted import Malformed, restore

FORMAT = "foretrain-calibration"
VERSION = 1
KINDS_OF_OPERATORS = "kinds"
"""Corrections of kinds of operators on a device, from a profile."""
WORKERS = "workers"
"""Constants of a step of CPU workers, from runs."""
OPERATORS, TIMINGS = "operators", "timings"
"""A CPU's timed operators, and a user's timed steps: kept in files of their own, exported as this."""
KINDS = (OPERATORS, TIMINGS, KINDS_OF_OPERATORS, WORKERS)
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_MOST_SPREAD = 3.0
"""Standard deviation of the logarithm beyond which a calibration explains nothing."""


@dataclass(frozen=True)
class CalibrationFile:
    """A calibration with its provenance.

    `residual_spread` is the standard deviation of log(measured / predicted) on samples that were left out of
    the fit. `content` is plain data whose form depends on `kind`.
    """

    name: str
    kind: str
    device: str
    device_name: str
    created_on: str
    foretrain: str
    software: Mapping[str, str]
    fitted_on: Mapping[str, Any]
    samples: int
    residual_spread: float
    content: Mapping[str, Any]


def calibrations_dir() -> Path:
    """The folder of the user's calibrations."""
    return user_data_dir() / "calibrations"


def measurements_file() -> Path:
    """The file of the user's timed steps; most users have none, and need nothing of `corrections.timings`."""
    return user_data_dir() / "measurements.json"


def file_of(name: str) -> Path:
    """The file of the calibration called `name`."""
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"{name!r} is no name of a calibration: use lower-case letters, digits, dots and dashes"
        )
    return calibrations_dir() / f"{name}.json"


def keep_calibration(calibration: CalibrationFile) -> Path:
    """Store a calibration under its name, atomically replacing one of the same name."""
    file = file_of(calibration.name)
    write_atomically(file, as_text(calibration))
    return file


def as_text(calibration: CalibrationFile) -> str:
    """The content of the file of a calibration."""
    header = {"format": FORMAT, "version": VERSION}
    return json.dumps({**header, **asdict(calibration)}, indent=1, allow_nan=False) + "\n"


def read_calibration(file: Path) -> CalibrationFile:
    """A calibration from its file; a foreign, newer, incomplete or damaged file raises `InvalidData`."""
    known = read_kept(file, _read)
    if known is None:
        raise MissingData(
            f"there is no calibration file {str(file)!r}; give one that `calibrate export` wrote"
        )
    return known


def _read(file: Path) -> CalibrationFile:
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidData(str(file), f"cannot be read ({error}); name an exported file") from error
    except ValueError as error:
        raise InvalidData(str(file), f"is not JSON or is truncated ({error}); export it again") from error
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise InvalidData(
            str(file), "is not a calibration of foretrain; `foretrain calibrate export NAME FILE` writes one"
        )
    version = raw.get("version")
    if not isinstance(version, int) or version < 1:
        raise InvalidData(str(file), f"has the version {version!r}; it must be a whole number of at least 1")
    if version > VERSION:
        raise InvalidData(
            str(file), f"has version {version}, written by a newer foretrain; this one reads up to {VERSION}"
        )
    return _check(file, raw)


def _check(file: Path, raw: Mapping[str, Any]) -> CalibrationFile:
    try:
        read = restore(CalibrationFile, raw)
    except Malformed as error:
        raise InvalidData(str(file), f"is damaged: {error}; export the calibration again") from error
    if read.kind not in KINDS:
        raise InvalidData(str(file), f"is of the unknown kind {read.kind!r}; known are {', '.join(KINDS)}")
    if not _NAME.fullmatch(read.name):
        raise InvalidData(str(file), f"has the name {read.name!r}, which is no name of a calibration")
    spread = read.residual_spread
    if not (math.isfinite(spread) and 0 <= spread <= _MOST_SPREAD):
        raise InvalidData(
            str(file), f"has a residual spread of {spread}, but it must be from 0 to {_MOST_SPREAD:g}"
        )
    if read.samples < 1:
        raise InvalidData(str(file), f"was fitted on {read.samples} samples; at least 1 is needed")
    return read


def calibration_for(kind: str, device_id: str) -> CalibrationFile | None:
    """The stored calibration of a kind for a device; None without one."""
    return read_kept(file_of(name_of(kind, device_id)), _read)


def name_of(kind: str, device_id: str) -> str:
    """The name under which a calibration of a kind for a device is stored."""
    return f"{kind}-{device_id}"
