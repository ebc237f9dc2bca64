"""Hugging Face Trainer's trainer_state.json: its log history, and the planned steps it knows."""

from __future__ import annotations

import json
from pathlib import Path

from foretrain.convergence.logs._base import Log, LogReader, log_of_rows
from foretrain.convergence.logs.jsonl_log import numbers
from foretrain.errors import InvalidData


class TrainerState(LogReader):
    """`log_history` is a list of objects with step, epoch and what was logged; `max_steps` is the plan."""

    name = "trainer-state"

    def suits(self, path: Path) -> bool:
        return path.suffix.lower() == ".json"

    def read(self, path: Path) -> Log:
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
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
