"""A user's own timings of a training job: a CSV file, one row for each run.

    model,device,gpus,batch,threads,disk_delay_seconds,iterations,seconds
    resnet50,t4,1,32,4,0,500,143.1

`device` (any name `foretrain devices` knows) and `seconds` (of the whole run) are needed. The others may be
left out if they are the same for all runs: `gpus` 1, `batch` (per device) 1, `threads` (that load data) 1,
`disk_delay_seconds` (waited for the disk at each iteration) 0, `iterations` 1, so that `seconds` are those
of one step. `model` separates networks in one file: an end-to-end regression is of one network.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from foretrain.errors import ForetrainError, InvalidData, InvalidRequest, MissingData, UnknownName
from foretrain.facts.devices import device

NUMBERS = {"gpus": 1.0, "batch": 1.0, "threads": 1.0, "disk_delay_seconds": 0.0, "iterations": 1.0}
"""The columns of numbers that may be left out, and what they then are."""
COLUMNS = ("model", "device", *NUMBERS, "seconds")
_NEEDED = ("device", "seconds")
_MAY_BE_ZERO = "disk_delay_seconds"


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a run is run on and with; `batch` is per device. Device names are resolved to ids."""

    device: str
    gpus: float = NUMBERS["gpus"]
    batch: float = NUMBERS["batch"]
    threads: float = NUMBERS["threads"]
    disk_delay_seconds: float = NUMBERS["disk_delay_seconds"]
    iterations: float = NUMBERS["iterations"]

    def __post_init__(self) -> None:
        object.__setattr__(self, "device", device(self.device).id)
        for name in NUMBERS:
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0 or (value == 0 and name != _MAY_BE_ZERO):
                raise InvalidRequest(f"{name} is {value:g}; it must be above 0")


@dataclass(frozen=True, slots=True)
class Timing:
    """One run: which network, on what, how long."""

    configuration: Configuration
    seconds: float
    model: str = ""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.seconds) and self.seconds > 0):
            raise InvalidRequest(f"seconds is {self.seconds:g}; it must be above 0")


def read_timings(file: Path) -> tuple[Timing, ...]:
    """The timings in a file; an error names its row."""
    if not file.is_file():
        raise MissingData(f"no timings file {file}; its columns are {', '.join(COLUMNS)}")
    with file.open(newline="", encoding="utf-8-sig") as text:
        rows = csv.reader(text)
        header = [name.strip() for name in next(rows, [])]
        _check_header(file, header)
        timings = [_timing(file, rows.line_num, header, fields) for fields in rows if any(fields)]
    if not timings:
        raise InvalidData(str(file), "holds a header and no timings")
    return tuple(timings)


def of_model(timings: Sequence[Timing], model: str) -> tuple[Timing, ...]:
    """The timings of one network."""
    of_this_model = tuple(timing for timing in timings if timing.model == model)
    if not of_this_model:
        known = sorted({timing.model for timing in timings})
        raise UnknownName("timed model", model, known, f"Timed: {', '.join(known)}")
    return of_this_model


def _check_header(file: Path, header: Sequence[str]) -> None:
    missing = [name for name in _NEEDED if name not in header]
    unknown = [name for name in header if name not in COLUMNS]
    twice = sorted({name for name in header if header.count(name) > 1})
    for problem, names in (("missing", missing), ("unknown", unknown), ("repeated", twice)):
        if names:
            listed = f"{problem} columns {', '.join(map(repr, names))}; known are {', '.join(COLUMNS)}"
            raise InvalidData(str(file), listed, row=1)


def _timing(file: Path, row: int, header: Sequence[str], fields: Sequence[str]) -> Timing:
    if len(fields) != len(header):
        raise InvalidData(str(file), f"{len(fields)} fields where the header has {len(header)}", row=row)
    text = {name: field.strip() for name, field in zip(header, fields, strict=True)}
    numbers = {name: _number(file, row, name, text[name]) for name in (*NUMBERS, "seconds") if name in text}
    seconds = numbers.pop("seconds")
    try:
        return Timing(Configuration(text["device"], **numbers), seconds, text.get("model", ""))
    except ForetrainError as error:
        raise InvalidData(str(file), str(error), row=row) from error


def _number(file: Path, row: int, name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidData(str(file), f"{name} is {text!r}, not a number", row=row) from None
