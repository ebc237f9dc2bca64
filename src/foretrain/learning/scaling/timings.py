"""Timed configurations of one job, and configurations to be told: the CSV files of `foretrain scaling`.

    placement,batch,step_seconds          nodes,devices,batch,step_seconds
    1,32,0.117                      or    1,1,32,0.117
    4+4,32,0.162                          2,8,32,0.162

`batch` is per device. Devices on nodes are spread as evenly as they go where only their number is given.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from foretrain.errors import ForetrainError, InvalidData, InvalidRequest, nearest
from foretrain.learning.scaling.placement import Placement, parse_placement, spread

Row = TypeVar("Row")
_PLACED, _COUNTED, _TIME = ("placement",), ("nodes", "devices"), "step_seconds"


@dataclass(frozen=True, slots=True)
class Configuration:
    """A placement and the batch of each device."""

    placement: Placement
    batch: int

    def __str__(self) -> str:
        return f"{self.placement} at batch {self.batch}"


@dataclass(frozen=True, slots=True)
class Timing:
    """A configuration and the seconds one of its steps took."""

    configuration: Configuration
    step_seconds: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.step_seconds) and self.step_seconds > 0):
            raise InvalidRequest(
                f"a step of {self.configuration} took {self.step_seconds} s; give seconds above 0"
            )


def read_timings(file: Path) -> tuple[Timing, ...]:
    """The timings of a CSV file; a malformed one raises `InvalidData` with the row and what is wrong."""

    def timing(cells: Mapping[str, str]) -> Timing:
        return Timing(_configuration(cells), _seconds(cells[_TIME]))

    return tuple(_rows(file, (_TIME,), (), timing, lambda item: item.configuration))


def read_configurations(file: Path) -> tuple[Configuration, ...]:
    """The configurations of a CSV file. A column of times is passed over, so that timings can be told."""
    return tuple(_rows(file, (), (_TIME,), _configuration, lambda item: item))


def _rows(
    file: Path,
    needed: tuple[str, ...],
    ignored: tuple[str, ...],
    read: Callable[[Mapping[str, str]], Row],
    key: Callable[[Row], Configuration],
) -> Iterator[Row]:
    seen: dict[Configuration, int] = {}
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            lines = csv.DictReader(stream, skipinitialspace=True)
            columns = [str(name).strip() for name in lines.fieldnames or ()]
            _check_columns(file, columns, needed, ignored)
            lines.fieldnames = columns
            for line in lines:
                row = _row(file, lines.line_num, line, read)
                where = seen.setdefault(key(row), lines.line_num)
                if where != lines.line_num:
                    problem = f"{key(row)} stands in row {where} already; keep one, such as the median"
                    raise InvalidData(str(file), problem, lines.line_num)
                yield row
    except FileNotFoundError:
        raise InvalidRequest(f"there is no file {str(file)!r}") from None
    except IsADirectoryError:
        raise InvalidRequest(f"{str(file)!r} is a folder; name a CSV file") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidData(str(file), f"is not a CSV file: {error}") from error
    if not seen:
        raise InvalidData(str(file), "has no rows below its header; add one for each configuration")


def _check_columns(file: Path, columns: list[str], needed: tuple[str, ...], ignored: tuple[str, ...]) -> None:
    places = _PLACED if _PLACED[0] in columns or not set(columns) & set(_COUNTED) else _COUNTED
    wanted = (*places, "batch", *needed)
    missing = [name for name in wanted if name not in columns]
    if missing:
        either = f"placement,batch{',' + _TIME if needed else ''} or nodes,devices in place of placement"
        raise InvalidData(str(file), f"lacks the column {', '.join(missing)}; its header is {either}", 1)
    for name in columns:
        if name not in (*wanted, *ignored):
            near = nearest(name, wanted)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join((*wanted, *ignored))}"
            raise InvalidData(str(file), f"nobody knows the column {name!r}; {hint}", 1)
        if columns.count(name) > 1:
            raise InvalidData(str(file), f"has the column {name!r} twice", 1)


def _row(
    file: Path, number: int, line: Mapping[str | None, Any], read: Callable[[Mapping[str, str]], Row]
) -> Row:
    if None in line or None in line.values():
        raise InvalidData(str(file), "more or fewer values than the header has columns", number)
    try:
        return read({str(name): str(value).strip() for name, value in line.items()})
    except ForetrainError as error:
        raise InvalidData(str(file), str(error), number) from error


def _configuration(cells: Mapping[str, str]) -> Configuration:
    if _PLACED[0] in cells:
        place = parse_placement(cells["placement"])
    else:
        place = spread(_count("nodes", cells["nodes"]), _count("devices", cells["devices"]))
    return Configuration(place, _count("batch", cells["batch"]))


def _count(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise InvalidRequest(f"{name} {text!r} is not a whole number of at least 1")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise InvalidRequest(f"{_TIME} {text!r} is not a time in seconds above 0, such as 0.125")
    return seconds
