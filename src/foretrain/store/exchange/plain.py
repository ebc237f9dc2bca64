"""A run as plain data, as JSON and Parquet files hold it, and back with every field checked.

Files that appear when they are complete.

Runs as JSON: `{"format": ..., "runs": [...]}` with every field of a run.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from foretrain.encoding import encode
from foretrain.errors import BackendFailed, InvalidData
from foretrain.store.runs import (
    Environment,
    Floats,
    PredictionMade,
    Resource,
    Run,
    Series,
    Status,
    StepSummary,
    WorkerSteps,
)

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)


class Malformed(ValueError):
    """A value that is not what its field takes; the message names the field."""


def plain(run: Run) -> dict[str, Any]:
    """The run as plain data; `answer`, `setting` and arrays included."""
    row: dict[str, Any] = encode(
        {name: value for name, value in vars(run).items() if name not in ("steps", "series")}
    )
    return {
        **row,
        "steps": [_with_lists(each) for each in run.steps],
        "series": [_with_lists(each) for each in run.series],
    }


def _with_lists(part: WorkerSteps | Series) -> dict[str, Any]:
    return {
        name: _numbers(value) if isinstance(value, np.ndarray) else encode(value)
        for name, value in vars(part).items()
    }


def _numbers(array: Floats) -> list[float | None]:
    """A list as JSON has it: nothing in place of NaN and infinities."""
    numbers: list[float | None] = array.tolist()
    if np.all(np.isfinite(array)):
        return numbers
    return [None if number is None or not math.isfinite(number) else number for number in numbers]


def run_from(row: Any) -> Run:
    """The run of plain data; what is wrong raises `Malformed` with the name of the field."""
    return Reader(row).run()


class Reader:
    """Reads the fields of one mapping; `path` is where it stands within the run."""

    def __init__(self, row: Any, path: str = "") -> None:
        if not isinstance(row, Mapping):
            raise Malformed(f"{path or 'a run'} is {_shown(row)}, not a mapping of fields")
        self._row, self._path = row, path

    def _error(self, name: str, wanted: str) -> Malformed:
        value = self._row.get(name)
        return Malformed(f"{self._path}{name} is {_shown(value)}; it must be {wanted}")

    def given(self, name: str) -> bool:
        return self._row.get(name) is not None

    def text(self, name: str, default: str | None = None) -> str:
        value = self._row.get(name, default)
        if not isinstance(value, str):
            raise self._error(name, "text")
        return value

    def maybe_text(self, name: str) -> str | None:
        return self.text(name) if self.given(name) else None

    def whole(self, name: str, default: int | None = None) -> int:
        value = default if self._row.get(name) is None else self._row[name]
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._error(name, "a whole number")
        return value

    def number(self, name: str) -> float:
        """A number; JSON has no NaN, so that nothing stands for it."""
        value = self._row.get(name)
        if name not in self._row or isinstance(value, bool) or not isinstance(value, int | float | None):
            raise self._error(name, "a number")
        return math.nan if value is None else float(value)

    def maybe_number(self, name: str) -> float | None:
        return self.number(name) if self.given(name) else None

    def time(self, name: str) -> datetime:
        value = self._row.get(name)
        try:
            time = value if isinstance(value, datetime) else datetime.fromisoformat(value or "")
        except (TypeError, ValueError) as error:
            raise self._error(name, "a time such as 2026-11-16T12:30:00+00:00") from error
        if time.utcoffset() is None:
            raise self._error(name, "a time with its zone, such as 2026-11-16T12:30:00+00:00")
        return time.astimezone(UTC)

    def one_of(self, name: str, kind: type[E]) -> E:
        try:
            return kind(str(self._row.get(name)))
        except ValueError as error:
            raise self._error(name, f"one of {', '.join(kind)}") from error

    def mapping(self, name: str) -> Mapping[str, Any]:
        value = self._row.get(name)
        if not isinstance(value, Mapping):
            raise self._error(name, "a mapping")
        return value

    def array(self, name: str) -> Floats:
        value = self._row.get(name)
        try:
            if not isinstance(value, list):
                raise TypeError
            return np.array([math.nan if each is None else each for each in value], dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise self._error(name, "a list of numbers") from error

    def part(self, name: str, read: Callable[[Reader], T]) -> T | None:
        return read(Reader(self._row[name], f"{self._path}{name}.")) if self.given(name) else None

    def parts(self, name: str, read: Callable[[Reader], T]) -> tuple[T, ...]:
        value = self._row[name] if self.given(name) else []
        if not isinstance(value, list):
            raise self._error(name, "a list")
        return tuple(read(Reader(each, f"{self._path}{name}[{place}].")) for place, each in enumerate(value))

    def run(self) -> Run:
        environment = self.part("environment", _environment)
        if environment is None:
            raise self._error("environment", "a mapping with `device` and `device_name`")
        command = self._row["command"] if self.given("command") else []
        if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
            raise self._error("command", "a list of words")
        return Run(
            id=self.text("id"),
            started_at=self.time("started_at"),
            seconds=self.number("seconds"),
            status=self.one_of("status", Status),
            exit_code=self.whole("exit_code") if self.given("exit_code") else None,
            command=tuple(command),
            setting=self.mapping("setting"),
            environment=environment,
            provenance=self.text("provenance"),
            summary=self.part("summary", _summary),
            prediction=self.part("prediction", _prediction),
            steps=self.parts("steps", _worker_steps),
            series=self.parts("series", _series),
            message=self.text("message", ""),
            campaign=self.maybe_text("campaign"),
            trial=self.maybe_text("trial"),
        )


def _environment(row: Reader) -> Environment:
    versions = row.mapping("versions") if row.given("versions") else {}
    return Environment(
        device=row.text("device"),
        device_name=row.text("device_name"),
        devices_per_node=row.whole("devices_per_node", 1),
        nodes=row.whole("nodes", 1),
        cpu=row.text("cpu", ""),
        cores=row.whole("cores", 0),
        memory_bytes=row.whole("memory_bytes", 0),
        driver=row.text("driver", ""),
        topology=row.text("topology", ""),
        versions={str(name): str(version) for name, version in versions.items()},
    )


def _summary(row: Reader) -> StepSummary:
    return StepSummary(
        seconds=row.number("seconds"),
        p10_seconds=row.number("p10_seconds"),
        p90_seconds=row.number("p90_seconds"),
        steps=row.whole("steps"),
        warm_up_steps=row.whole("warm_up_steps"),
        variation=row.number("variation"),
        input_share=row.maybe_number("input_share"),
        source=row.text("source", ""),
    )


def _prediction(row: Reader) -> PredictionMade:
    return PredictionMade(
        made_at=row.time("made_at"),
        version=row.text("version"),
        knowledge=row.text("knowledge"),
        p10_seconds=row.number("p10_seconds"),
        p50_seconds=row.number("p50_seconds"),
        p90_seconds=row.number("p90_seconds"),
        memory_bytes=row.maybe_number("memory_bytes"),
        answer=row.mapping("answer") if row.given("answer") else {},
    )


def _worker_steps(row: Reader) -> WorkerSteps:
    return WorkerSteps(
        worker=row.whole("worker"),
        node=row.whole("node", 0),
        ends=row.array("ends"),
        seconds=row.array("seconds"),
        input_seconds=row.array("input_seconds"),
    )


def _series(row: Reader) -> Series:
    return Series(
        resource=row.one_of("resource", Resource),
        worker=row.whole("worker"),
        node=row.whole("node", 0),
        label=row.text("label", ""),
        seconds=row.array("seconds"),
        values=row.array("values"),
    )


def _shown(value: Any) -> str:
    text = repr(value)
    return "missing" if value is None else text if len(text) < 60 else f"{text[:57]}..."


@contextmanager
def written_whole(file: Path) -> Iterator[Path]:
    """A path to write to; it takes the place of `file` at the end, and is removed if something fails."""
    try:
        with tempfile.TemporaryDirectory(dir=file.absolute().parent, prefix=f".{file.name}.") as folder:
            partial = Path(folder) / file.name
            yield partial
            partial.replace(file)
    except OSError as error:
        raise BackendFailed(f"{file} cannot be written: {error.strerror or error}") from error


FORMAT = "foretrain runs 1"


def write_json(file: Path, chunks: Iterator[list[Run]]) -> int:
    """Write runs; returns their number."""
    count = 0
    with written_whole(file) as partial, partial.open("w", encoding="utf-8") as stream:
        stream.write(f'{{"format": "{FORMAT}", "runs": [')
        for chunk in chunks:
            for run in chunk:
                stream.write(",\n" if count else "\n")
                stream.write(json.dumps(plain(run), allow_nan=False, default=str))
                count += 1
        stream.write("\n]}\n")
    return count


def read_json(file: Path) -> list[Run]:
    """The runs of a file."""
    try:
        content = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InvalidData(
            str(file), f"is not JSON ({error}); `foretrain runs export` writes such files"
        ) from error
    if not isinstance(content, dict) or not isinstance(content.get("runs"), list):
        raise InvalidData(str(file), "has no list `runs`; `foretrain runs export` writes such files")
    if content.get("format") != FORMAT:
        raise InvalidData(str(file), f"is of format {content.get('format')!r}; this version reads {FORMAT!r}")
    runs = []
    for place, row in enumerate(content["runs"], 1):
        try:
            runs.append(run_from(row))
        except Malformed as error:
            raise InvalidData(str(file), str(error), place) from error
    return runs
