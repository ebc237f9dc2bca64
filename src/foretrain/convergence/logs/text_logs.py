"""Logs as text: CSV with steps or epochs, Keras' CSVLogger, JSON lines, Hugging Face's trainer state, and
what Weights & Biases and MLflow export.

Keras counts epochs from 0 and sorts metrics by name. In JSON lines each object is a step; nested objects give
columns joined by a slash. `trainer_state.json` also has the planned steps.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from foretrain.convergence.logs._base import (
    OF_RUN,
    Log,
    LogReader,
    LogRecord,
    log_of_records,
    log_of_rows,
    number,
    read_value,
)
from foretrain.errors import InvalidData


class CsvLog(LogReader):
    """One row a step; cells may be empty where a metric was not logged. Columns of words are left out.

    The separator is that which gives the header most columns: a comma, a semicolon or a tab. Beside the
    last two a comma in a number is the decimal sign.
    """

    name = "csv"

    def suits(self, path: Path) -> bool:
        return path.suffix.lower() in (".csv", ".tsv")

    def read(self, path: Path) -> Log:
        table = _read_table(path)
        return log_of_records(path.name, _records(table)) if table.is_long else log_of_rows(*_rows(table))


_SEPARATORS = (",", ";", "\t")
_BOUNDS = ("__MIN", "__MAX")
"""What Weights & Biases adds to a metric for the range over the runs of a group."""
_LONG = ("key", "value", "step")
"""The columns of MLflow's export: one value of one metric a row."""
_DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?([eE][+-]?\d+)?")


@dataclass(frozen=True)
class _Table:
    """A CSV file: its header, and its rows with their numbers in the file."""

    file: str
    header: tuple[str, ...]
    body: tuple[tuple[int, tuple[str, ...]], ...]

    @property
    def is_long(self) -> bool:
        return {*_LONG} <= {name.lower() for name in self.header}

    def place(self, name: str) -> int | None:
        """Where a column is, whatever its case."""
        return next((at for at, column in enumerate(self.header) if column.lower() == name), None)


def _read_table(path: Path) -> _Table:
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as stream:
        text = stream.read()
    first = text.splitlines()[:1]
    separator = max(_SEPARATORS, key=lambda each: len(next(csv.reader(first, delimiter=each), [])))
    lines = list(csv.reader(text.splitlines(keepends=True), delimiter=separator))
    if not lines:
        raise InvalidData(path.name, "the file is empty; it must have a row for each step")
    header = tuple(name.strip() for name in lines[0])
    if len(set(header)) != len(header):
        raise InvalidData(path.name, f"a column is named twice in {', '.join(header)}", 1)
    body = []
    for row, cells in enumerate(lines[1:], start=2):
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(header):
            raise InvalidData(path.name, f"{len(cells)} cells, but the header has {len(header)} columns", row)
        body.append((row, tuple(cells)))
    if separator != "," and any(
        _DECIMAL_COMMA.fullmatch(cell) and "," in cell for _, row in body for cell in row
    ):
        body = [(row, tuple(map(_with_point, cells))) for row, cells in body]
    return _Table(path.name, header, tuple(body))


def _with_point(cell: str) -> str:
    """A number with a decimal comma (and points between thousands) as other tools write it."""
    word = cell.strip()
    return word.replace(".", "").replace(",", ".") if _DECIMAL_COMMA.fullmatch(word) else word


def _rows(table: _Table) -> tuple[str, list[dict[str, float]]]:
    """The file's name and its rows, without columns of words and without those of ranges."""
    used = {
        place: name
        for place, name in enumerate(table.header)
        if not _is_beside_a_metric(name, table.header)
        and not _is_text([cells[place] for _, cells in table.body])
    }
    rows = [
        {name: number(cells[place], table.file, row, name) for place, name in used.items()}
        for row, cells in table.body
    ]
    return table.file, rows


def _is_beside_a_metric(name: str, header: Sequence[str]) -> bool:
    """Whether Weights & Biases adds it to a metric: `run - loss__MIN`, `run - loss__MAX`, `run - _step`."""
    return name.endswith(f"{OF_RUN}_step") or (name.endswith(_BOUNDS) and name[: -len(_BOUNDS[0])] in header)


def _records(table: _Table) -> Iterator[LogRecord]:
    run = next((at for name in ("run", "run_id") if (at := table.place(name)) is not None), None)
    metric, value, step = (table.place(name) or 0 for name in _LONG)
    for row, cells in table.body:
        yield LogRecord(
            "" if run is None else cells[run],
            cells[metric],
            number(cells[step], table.file, row, "step"),
            number(cells[value], table.file, row, "value"),
        )


def _is_text(cells: list[str]) -> bool:
    """Whether no cell of a column is a number (a name, a date); a bad cell among numbers is an error."""
    filled = [cell for cell in cells if cell.strip()]
    return bool(filled) and not any(_is_number(cell) for cell in filled)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


class KerasCsv(LogReader):
    """A CSV (any name) whose first column is `epoch` counting from 0; separator , or ;."""

    name = "keras"

    def suits(self, path: Path) -> bool:
        if path.suffix.lower() not in (".csv", ".log"):
            return False
        with path.open(encoding="utf-8", errors="replace") as stream:
            header, first = stream.readline(), stream.readline()
        return all(
            re.split("[,;]", line)[0].strip() == start for line, start in ((header, "epoch"), (first, "0"))
        )

    def read(self, path: Path) -> Log:
        """Epoch 0 ends after one epoch, so that counting starts at 1."""
        log = CsvLog().read(path)
        counted = {
            name: values + 1 if name == log.counter else values for name, values in log.columns.items()
        }
        return replace(log, columns=counted)


class JsonLines(LogReader):
    """Rows need not have the same keys; what is no number is left out."""

    name = "jsonl"

    def suits(self, path: Path) -> bool:
        return path.suffix.lower() in (".jsonl", ".ndjson")

    def read(self, path: Path) -> Log:
        rows = []
        for row, line in enumerate(_text(path).splitlines(), start=1):
            if not line.strip():
                continue
            try:
                item = json.loads(line)
            except json.JSONDecodeError as error:
                raise InvalidData(path.name, f"not JSON: {error.msg}", row) from None
            if not isinstance(item, dict):
                raise InvalidData(path.name, f"an object was expected, not {line.strip()[:40]}", row)
            rows.append(dict(numbers(item)))
        if not rows:
            raise InvalidData(path.name, "the file is empty; it must have a row for each step")
        return log_of_rows(path.name, rows)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidData(path.name, f"is not text: {error}; save it as UTF-8") from error


def numbers(item: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, float]]:
    """The numbers of an object, nested ones with their path."""
    for key, value in item.items():
        if isinstance(value, Mapping):
            yield from numbers(value, f"{prefix}{key}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{key}", read_value(float(value))


class JsonLog(LogReader):
    """One JSON value: Hugging Face's trainer state, a list of rows, or MLflow's history of a metric.

    The trainer's `log_history` lists objects with step, epoch and what was logged; `max_steps` is the plan.
    """

    name = "json"

    def suits(self, path: Path) -> bool:
        return path.suffix.lower() == ".json"

    def read(self, path: Path) -> Log:
        try:
            state = json.loads(_text(path))
        except json.JSONDecodeError as error:
            raise InvalidData(path.name, f"not JSON: {error.msg}", error.lineno) from None
        content = state if isinstance(state, dict) else {"log_history": state}
        where = next((key for key in ("log_history", "metrics") if isinstance(content.get(key), list)), None)
        if where is None or not content[where]:
            seen = ", ".join(content) if isinstance(state, dict) else type(state).__name__
            raise InvalidData(
                path.name,
                "no log_history: a trainer_state.json of Hugging Face's Trainer, a list of objects with a "
                f"step each, or the metrics of MLflow's get-history was expected; found {seen or 'nothing'}",
            )
        for place, item in enumerate(content[where], start=1):
            if not isinstance(item, dict):
                raise InvalidData(path.name, f"entry of {where} is no object", place)
        if where == "metrics":
            return log_of_records(path.name, _mlflow_records(path.name, content[where]))
        planned = content.get("max_steps")
        return log_of_rows(
            path.name,
            [dict(numbers(item)) for item in content[where]],
            float(planned) if isinstance(planned, int) and planned > 0 else None,
        )


def _mlflow_records(file: str, items: Sequence[Mapping[str, object]]) -> Iterator[LogRecord]:
    for place, item in enumerate(items, start=1):
        if not {*_LONG} <= {*item}:
            raise InvalidData(
                file, f"a metric of MLflow has {', '.join(_LONG)}; found {', '.join(item)}", place
            )
        step, value = (number(item[name], file, place, name) for name in ("step", "value"))
        yield LogRecord(str(item.get("run_id", "")), str(item["key"]), step, value)


class MlflowMetrics(LogReader):
    """A file of MLflow's store, `RUN/metrics/NAME`: a row has milliseconds, value and step."""

    name = "mlflow"

    def suits(self, path: Path) -> bool:
        return METRICS in path.parts[:-1] and not path.suffix and bool(_MLFLOW_ROW.match(_first_line(path)))

    def read(self, path: Path) -> Log:
        metric = "/".join(path.parts[len(path.parts) - path.parts[::-1].index(METRICS) :])
        records = []
        for row, line in enumerate(_text(path).splitlines(), start=1):
            if not _MLFLOW_ROW.match(line):
                raise InvalidData(
                    path.name, f"milliseconds, value and step were expected, not {line[:40]!r}", row
                )
            _, value, step = line.split()[:3]
            records.append(
                LogRecord("", metric, number(step, metric, row, "step"), number(value, metric, row, "value"))
            )
        return log_of_records(path.name, records)


METRICS = "metrics"
"""The folder of metrics of a run in MLflow's store."""
_MLFLOW_ROW = re.compile(r"\d{10,} \S+ \d+( |$)")


def _first_line(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as stream:
        return stream.readline().rstrip("\n")
