"""A run as plain data, as JSON and Parquet files hold it, and runs as JSON.

A JSON file is `{"format": ..., "runs": [...]}` with every field of a run. Files appear when complete.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from foretrain.encoding import encode
from foretrain.errors import InvalidData
from foretrain.facts.user_data import written_whole
from foretrain.persisted import Malformed, restore
from foretrain.store.runs import Floats, ResourceSeries, Run, WorkerSteps


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


def _with_lists(part: WorkerSteps | ResourceSeries) -> dict[str, Any]:
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
    return restore(Run, row, "a run")


FORMAT = "foretrain runs 1"


def write_json(file: Path, chunks: Iterator[list[Run]]) -> int:
    """Write runs; returns their number."""
    count = 0
    with written_whole("FILE", file) as partial, partial.open("w", encoding="utf-8") as stream:
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
