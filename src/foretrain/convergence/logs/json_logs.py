"""Logs as JSON: lines of objects, and the state of Hugging Face's Trainer.

JSON lines: an object a step; nested objects give columns joined by a slash.

Hugging Face Trainer's trainer_state.json: its log history, and the planned steps it knows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from foretrain.convergence.logs._base import Log, LogReader, log_of_rows, logged
from foretrain.errors import InvalidData


class JsonLines(LogReader):
    """Rows need not have the same keys; what is no number is left out."""

    name = "jsonl"

    def suits(self, path: Path) -> bool:
        return path.suffix.lower() in (".jsonl", ".ndjson")

    def read(self, path: Path) -> Log:
        rows = []
        for number, line in enumerate(_text(path).splitlines(), start=1):
            if not line.strip():
                continue
            try:
                item = json.loads(line)
            except json.JSONDecodeError as error:
                raise InvalidData(path.name, f"not JSON: {error.msg}", number) from None
            if not isinstance(item, dict):
                raise InvalidData(path.name, f"an object was expected, not {line.strip()[:40]}", number)
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
            yield f"{prefix}{key}", logged(float(value))


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
