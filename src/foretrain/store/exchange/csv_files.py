"""Runs as CSV: one row per run, without steps and series.

A file of timings needs the columns `model`, `device` (or `on`), `batch` (or `global_batch`) and
`step_seconds`; every other option that describes a run may be a column. Exported files have further columns,
which an import reads back. A run whose file does not state its start gets the time of the import.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from foretrain.errors import ForetrainError, InvalidData
from foretrain.facts.user_data import written_whole
from foretrain.store.runs import Environment, PredictionMade, Run, Status, StepSummary

_FIRST = ("model", "on", "batch")
DescriptionReader = Callable[[Mapping[str, str]], tuple[dict[str, Any], Environment]]
"""Checks the cells of a row that describe a run, by column: its setting, and the hardware that it names."""

_TIMES = ("started_at", "predicted_at")
_NUMBERS = (
    "seconds", "step_seconds", "step_p10_seconds", "step_p90_seconds", "variation", "input_share",
    "predicted_p10_seconds", "predicted_seconds", "predicted_p90_seconds", "predicted_memory_bytes",
)  # fmt: skip
_WHOLE = ("exit_code", "measured_steps", "warm_up_steps", "nodes", "devices_per_node")
COLUMNS = (
    "id", "started_at", "status", "exit_code", "device", "device_name", "devices_per_node", "nodes",
    "seconds", "step_seconds", "step_p10_seconds", "step_p90_seconds", "measured_steps", "warm_up_steps",
    "variation", "input_share", "step_source", "predicted_p10_seconds", "predicted_seconds",
    "predicted_p90_seconds", "predicted_memory_bytes", "predicted_at", "predicted_version",
    "predicted_knowledge", "provenance", "campaign", "trial", "message", "command",
)  # fmt: skip
"""What a file says about a run besides its setting. `device` is that of the environment."""


def write_csv(file: Path, chunks: Iterator[list[Run]]) -> int:
    """Write runs, the columns of their settings first; returns their number."""
    runs = [run for chunk in chunks for run in chunk]
    keys = list(dict.fromkeys(key for run in runs for key in (*_FIRST, *run.setting)))
    with written_whole("FILE", file) as partial, partial.open("w", encoding="utf-8", newline="") as stream:
        lines = csv.writer(stream, lineterminator="\n")
        lines.writerow([*(_column(key) for key in keys), *COLUMNS])
        for run in runs:
            values = _values(run)
            cells = [*(run.setting.get(key) for key in keys), *(values[name] for name in COLUMNS)]
            lines.writerow([_cell(value) for value in cells])
    return len(runs)


def _column(key: str) -> str:
    return f"setting.{key}" if key in COLUMNS else key


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return value.isoformat()
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text.encode("utf-8", "backslashreplace").decode()


def _values(run: Run) -> dict[str, Any]:
    summary, made, environment = run.summary, run.prediction, run.environment
    return {
        "id": run.id,
        "started_at": run.started_at,
        "status": run.status.value,
        "exit_code": run.exit_code,
        "device": environment.device,
        "device_name": environment.device_name,
        "devices_per_node": environment.devices_per_node,
        "nodes": environment.nodes,
        "seconds": run.seconds,
        "step_seconds": summary and summary.seconds,
        "step_p10_seconds": summary and summary.p10_seconds,
        "step_p90_seconds": summary and summary.p90_seconds,
        "measured_steps": summary and summary.steps,
        "warm_up_steps": summary and summary.warm_up_steps,
        "variation": summary and summary.variation,
        "input_share": summary and summary.input_share,
        "step_source": summary and summary.source,
        "predicted_p10_seconds": made and made.p10_seconds,
        "predicted_seconds": made and made.p50_seconds,
        "predicted_p90_seconds": made and made.p90_seconds,
        "predicted_memory_bytes": made and made.memory_bytes,
        "predicted_at": made and made.made_at,
        "predicted_version": made and made.version,
        "predicted_knowledge": made and made.knowledge,
        "provenance": run.provenance,
        "campaign": run.campaign,
        "trial": run.trial,
        "message": run.message,
        "command": list(run.command) if run.command else None,
    }


def read_csv(file: Path, describe: DescriptionReader) -> list[Run]:
    """The runs of a file; a malformed one raises `InvalidData` with its row and column."""
    runs: list[Run] = []
    seen: Counter[str] = Counter()
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            lines = csv.DictReader(stream)
            _check_columns(file, lines.fieldnames)
            for line in lines:
                try:
                    runs.append(_run(line, describe, file, seen))
                except ForetrainError as error:
                    raise InvalidData(str(file), str(error), lines.line_num) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidData(str(file), f"is not a CSV file: {error}") from error
    if not runs:
        raise InvalidData(str(file), "has no rows below its header; add one row per measured run")
    return runs


def _check_columns(file: Path, columns: Sequence[str] | None) -> None:
    names = set(columns or ())
    for alternatives in (("model",), ("device", "on"), ("batch", "global_batch"), ("step_seconds",)):
        if not names & set(alternatives):
            needed = "model, device, batch, step_seconds"
            raise InvalidData(
                str(file), f"lacks the column {' or '.join(alternatives)}; the header must name {needed}", 1
            )
    doubled = [name for name, count in Counter(columns or ()).items() if count > 1]
    if doubled:
        raise InvalidData(str(file), f"names the column {doubled[0]!r} twice", 1)


def _run(line: Mapping[Any, Any], describe: DescriptionReader, file: Path, seen: Counter[str]) -> Run:
    if None in line or None in line.values():
        raise _BadCell("more or fewer values than the header has columns")
    cells = {name: value.strip() for name, value in line.items() if value.strip()}
    values = {name: _value(name, text) for name, text in cells.items() if name in COLUMNS}
    described = {name.removeprefix("setting."): text for name, text in cells.items() if name not in COLUMNS}
    if "on" not in described and "device" in values:
        described["on"] = values.pop("device")  # the id of the device may be another than the name given
    setting, hardware = describe(described)
    if "step_seconds" not in values and values.get("status", Status.COMPLETED) is Status.COMPLETED:
        raise _bad("step_seconds", "", "a time in seconds above 0, such as 0.125")
    return Run(
        id=values.get("id") or _content_id(cells, seen),
        started_at=values.get("started_at") or datetime.now(UTC),
        seconds=values.get("seconds", math.nan),
        status=values.get("status", Status.COMPLETED),
        exit_code=values.get("exit_code"),
        command=tuple(values.get("command", ())),
        setting=setting,
        environment=_environment(values, hardware),
        provenance=values.get("provenance") or f"import {file.name}",
        summary=_summary(values),
        prediction=_prediction(values),
        message=values.get("message", ""),
        campaign=values.get("campaign"),
        trial=values.get("trial"),
    )


def _content_id(cells: Mapping[str, str], seen: Counter[str]) -> str:
    """An id made of the content of the row, and of its place among equal rows of the file."""
    content = json.dumps(cells, sort_keys=True)
    seen[content] += 1
    return hashlib.sha256(f"{seen[content]} {content}".encode()).hexdigest()[:16]


def _environment(values: Mapping[str, Any], hardware: Environment) -> Environment:
    """The hardware, except for what the file states itself."""
    columns = ("device", "device_name", "devices_per_node", "nodes")
    return replace(hardware, **{name: values[name] for name in columns if name in values})


def _summary(values: Mapping[str, Any]) -> StepSummary | None:
    seconds = values.get("step_seconds")
    if seconds is None:
        return None
    return StepSummary(
        seconds=seconds,
        p10_seconds=values.get("step_p10_seconds", seconds),
        p90_seconds=values.get("step_p90_seconds", seconds),
        steps=values.get("measured_steps", 1),
        warm_up_steps=values.get("warm_up_steps", 0),
        variation=values.get("variation", math.nan),
        input_share=values.get("input_share"),
        source=values.get("step_source", "import"),
    )


def _prediction(values: Mapping[str, Any]) -> PredictionMade | None:
    if "predicted_seconds" not in values:
        return None
    return PredictionMade(
        made_at=values.get("predicted_at") or datetime.now(UTC),
        version=values.get("predicted_version", ""),
        knowledge=values.get("predicted_knowledge", ""),
        p10_seconds=values.get("predicted_p10_seconds", math.nan),
        p50_seconds=values["predicted_seconds"],
        p90_seconds=values.get("predicted_p90_seconds", math.nan),
        memory_bytes=values.get("predicted_memory_bytes"),
    )


def _value(name: str, text: str) -> Any:
    if name in _NUMBERS:
        return _number(name, text)
    if name in _WHOLE:
        if not text.removeprefix("-").isdecimal():
            raise _bad(name, text, "a whole number")
        return int(text)
    if name in _TIMES:
        return _time(name, text)
    if name == "status":
        if text not in list(Status):
            raise _bad(name, text, f"one of {', '.join(Status)}")
        return Status(text)
    if name == "command":
        return _words(text)
    return text


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    above_zero = name in ("step_seconds", "step_p10_seconds", "step_p90_seconds", "predicted_seconds")
    if not math.isfinite(number) or number < 0 or (above_zero and number == 0):
        wanted = "a time in seconds above 0, such as 0.125" if above_zero else "a number of at least 0"
        raise _bad(name, text, wanted)
    return number


def _time(name: str, text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise _bad(name, text, "a time such as 2026-11-16T12:30:00+00:00") from error
    return time.replace(tzinfo=UTC) if time.utcoffset() is None else time.astimezone(UTC)


def _words(text: str) -> list[str]:
    try:
        words = json.loads(text)
    except ValueError:
        words = text.split()
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise _bad("command", text, 'a list of words, such as ["python", "train.py"]')
    return words


class _BadCell(ForetrainError):
    """A cell that cannot be read; the file and row are added where they are known."""


def _bad(column: str, text: str, wanted: str) -> _BadCell:
    seen = f"is {text!r}" if text else "is empty"
    return _BadCell(f"column {column} {seen}; it must be {wanted}")
