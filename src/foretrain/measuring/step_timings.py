"""A table of step times that a user measured: `model,device,batch,step_seconds` and what else was chosen."""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from foretrain.errors import ForetrainError, InvalidData, InvalidRequest, MissingData, nearest
from foretrain.facts.devices import device
from foretrain.prediction.corrections.timings import TimedConfiguration
from foretrain.workloads.options import ATTENTIONS, PRECISIONS

NEEDED = ("model", "device", "batch", "step_seconds")
OPTIONAL = (
    "precision", "seq_len", "image_size", "optimizer", "attention", "channels_last", "compile", "devices",
    "strategy", "micro_batches", "framework", "checkpoint_activations",
)  # fmt: skip
_YES, _NO = ("1", "true", "yes"), ("0", "false", "no")


class StepTiming(NamedTuple):
    """One configuration and the time of its step; `row` is the first line of the file that states it."""

    configuration: TimedConfiguration
    step_seconds: float
    row: int


def read_timings(file: Path) -> tuple[StepTiming, ...]:
    """The timings in a CSV file; of a configuration timed several times the median.

    A malformed file raises `InvalidData` with the line and what would be right there.
    """
    by_configuration: dict[TimedConfiguration, list[StepTiming]] = {}
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            lines = csv.DictReader(stream)
            _check_columns(file, lines.fieldnames)
            for line in lines:
                timing = _timing(file, lines.line_num, line)
                by_configuration.setdefault(timing.configuration, []).append(timing)
    except FileNotFoundError:
        raise MissingData(
            f"there is no file {str(file)!r} of timings; give a CSV with the columns {', '.join(NEEDED)}"
        ) from None
    except IsADirectoryError:
        raise InvalidRequest(f"{str(file)!r} is a folder; name a CSV file of timings") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidData(str(file), f"is not a CSV file: {error}") from error
    if not by_configuration:
        raise InvalidData(str(file), "has no timings below its header; add one line per measured step")
    return tuple(
        StepTiming(configuration, statistics.median(item.step_seconds for item in items), items[0].row)
        for configuration, items in by_configuration.items()
    )


def _check_columns(file: Path, columns: Any) -> None:
    columns = columns or []
    known = (*NEEDED, *OPTIONAL)
    missing = [name for name in NEEDED if name not in columns]
    if missing:
        problem = f"lacks the column {', '.join(missing)}; the header must name {', '.join(NEEDED)}"
        raise InvalidData(str(file), problem, 1)
    for name in columns:
        if name not in known:
            near = nearest(str(name), known)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            raise InvalidData(str(file), f"unknown column {name!r}; {hint}", 1)


def _timing(file: Path, row: int, line: Mapping[str | None, Any]) -> StepTiming:
    if None in line or None in line.values():
        problem = "more or fewer values than the header has columns"
        raise InvalidData(str(file), problem, row)
    cells = {str(name): str(value).strip() for name, value in line.items()}
    try:
        chosen = {name: read(name, cells[name]) for name, read in _READERS.items() if cells.get(name)}
        absent = [name for name in NEEDED if name not in chosen]
        if absent:
            raise InvalidRequest(f"{', '.join(absent)} is empty; every row must have {', '.join(NEEDED)}")
        seconds = chosen.pop("step_seconds")
        return StepTiming(TimedConfiguration(**chosen), seconds, row)
    except ForetrainError as error:
        raise InvalidData(str(file), str(error), row) from error


def _seconds(name: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise InvalidRequest(f"{name} {text!r} is not a time in seconds above 0, such as 0.125")
    return seconds


def _count(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise InvalidRequest(f"{name} {text!r} is not a whole number of at least 1")
    return int(text)


def _flag(name: str, text: str) -> bool:
    if text.lower() not in (*_YES, *_NO):
        raise InvalidRequest(f"{name} {text!r} is neither yes nor no")
    return text.lower() in _YES


def _one_of(choices: tuple[str, ...]) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        if text not in choices:
            raise InvalidRequest(f"{name} {text!r} is not one of {', '.join(choices)}")
        return text

    return read


def _devices(name: str, text: str) -> str:
    counts = text.lower().split("x")
    if len(counts) > 2:
        raise InvalidRequest(
            f"{name} {text!r} is neither a number, such as 8, nor per node x nodes, as in 8x2"
        )
    return "x".join(str(_count(name, count)) for count in counts)


_READERS: Mapping[str, Callable[[str, str], Any]] = {
    "model": lambda _, text: text,
    "device": lambda _, text: device(text).id,
    "batch": _count,
    "step_seconds": _seconds,
    "precision": _one_of(PRECISIONS),
    "seq_len": _count,
    "image_size": _count,
    "optimizer": lambda _, text: text,
    "attention": _one_of(ATTENTIONS),
    "channels_last": _flag,
    "compile": _flag,
    "devices": _devices,
    "strategy": lambda _, text: text,
    "micro_batches": _count,
    "framework": lambda _, text: text,
    "checkpoint_activations": _flag,
}
