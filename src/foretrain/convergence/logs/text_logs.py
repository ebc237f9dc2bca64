"""Logs as text: CSV with steps or epochs, Keras' CSVLogger, JSON lines, Hugging Face's trainer state.

Keras counts epochs from 0 and sorts metrics by name. In JSON lines each object is a step; nested objects give
columns joined by a slash. `trainer_state.json` also has the planned steps.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from foretrain.convergence.logs._base import Log, LogReader, log_of_rows, number, read_value
from foretrain.errors import InvalidData


class CsvLog(LogReader):
    """One row a step; cells may be empty where a metric was not logged. Columns of words are left out."""

    name = "csv"

    def suits(self, path: Path) -> bool:
        return path.suffix.lower() in (".csv", ".tsv")

    def read(self, path: Path) -> Log:
        with path.open(newline="", encoding="utf-8-sig", errors="replace") as stream:
            lines = list(csv.reader(stream, delimiter="\t" if path.suffix.lower() == ".tsv" else ","))
        if not lines:
            raise InvalidData(path.name, "the file is empty; it must have a row for each step")
        header = [name.strip() for name in lines[0]]
        if len(set(header)) != len(header):
            raise InvalidData(path.name, f"a column is named twice in {', '.join(header)}", 1)
        body = [
            (row, cells)
            for row, cells in enumerate(lines[1:], start=2)
            if any(cell.strip() for cell in cells)
        ]
        for row, cells in body:
            if len(cells) != len(header):
                raise InvalidData(
                    path.name, f"{len(cells)} cells, but the header has {len(header)} columns", row
                )
        words = {name for place, name in enumerate(header) if _is_text([cells[place] for _, cells in body])}
        rows = [
            {
                name: number(cell, path.name, row, name)
                for name, cell in zip(header, cells, strict=True)
                if name not in words
            }
            for row, cells in body
        ]
        return log_of_rows(path.name, rows)


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
        return header.split(",")[0].strip() == "epoch" and first.split(",")[0].strip() == "0"

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


class TrainerState(LogReader):
    """`log_history` is a list of objects with step, epoch and what was logged; `max_steps` is the plan."""

    name = "trainer-state"

    def suits(self, path: Path) -> bool:
        return path.suffix.lower() == ".json"

    def read(self, path: Path) -> Log:
        try:
            state = json.loads(_text(path))
        except json.JSONDecodeError as error:
            raise InvalidData(path.name, f"not JSON: {error.msg}", error.lineno) from None
        history = state.get("log_history") if isinstance(state, dict) else None
        if not isinstance(history, list) or not history:
            raise InvalidData(
                path.name, "no log_history: a trainer_state.json of Hugging Face's Trainer was expected"
            )
        rows = []
        for place, item in enumerate(history, start=1):
            if not isinstance(item, dict):
                raise InvalidData(path.name, "entry of log_history is no object", place)
            rows.append(dict(numbers(item)))
        planned = state.get("max_steps")
        return log_of_rows(
            path.name, rows, float(planned) if isinstance(planned, int) and planned > 0 else None
        )
