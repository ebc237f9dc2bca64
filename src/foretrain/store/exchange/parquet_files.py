"""Runs as Parquet: one row per run with nested steps and series, for pandas, polars, DuckDB and foretrain.

Times are whole microseconds, stored as differences; values are doubles whose bytes are grouped before
compression. `setting`, `versions` and `answer` are JSON text, as their keys differ from run to run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from foretrain.errors import InvalidData, MissingData
from foretrain.facts.user_data import written_whole
from foretrain.persisted import Malformed
from foretrain.store.exchange.plain import plain, run_from
from foretrain.store.runs import Run

FORMAT = b"foretrain runs 1"
_KEY = b"format"
_TICKS_PER_SECOND = 1e6


def write_parquet(file: Path, chunks: Iterator[list[Run]]) -> int:
    """Write runs, one row group per chunk; returns their number."""
    pa, pq = _libraries()
    schema = _schema(pa)
    count = 0
    with (
        written_whole("FILE", file) as partial,
        pq.ParquetWriter(
            partial, schema, compression="zstd", compression_level=9, use_dictionary=["status", "model"],
            column_encoding=_ENCODINGS,
        ) as writer,
    ):  # fmt: skip
        for chunk in chunks:
            writer.write_table(pa.Table.from_pylist([_row(run) for run in chunk], schema=schema))
            count += len(chunk)
    return count


def read_parquet(file: Path) -> list[Run]:
    """The runs of a file."""
    pa, pq = _libraries()
    if not file.is_file():
        raise MissingData(f"there is no file {str(file)!r} of runs; `foretrain runs export` writes one")
    try:
        table = pq.read_table(file)
    except (pa.ArrowException, OSError) as error:
        raise InvalidData(str(file), f"is not a readable Parquet file ({error}); export it again") from error
    form = (table.schema.metadata or {}).get(_KEY)
    if form != FORMAT:
        is_ours = (form or b"").startswith(b"foretrain runs")
        problem = f"is of format {(form or b'').decode()!r}; this version reads {FORMAT.decode()!r}"
        raise InvalidData(str(file), problem if is_ours else "holds no runs that foretrain exported")
    runs = []
    for place, row in enumerate(table.to_pylist(), 1):
        try:
            runs.append(run_from(_fields(row)))
        except (Malformed, KeyError, TypeError, ValueError) as error:
            raise InvalidData(str(file), str(error), place) from error
    return runs


def _libraries() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingData("Parquet files need pyarrow: pip install 'foretrain[parquet]'") from error
    return pa, pq


_TIMES = ("steps.list.element.ends", "series.list.element.seconds")
_VALUES = ("steps.list.element.seconds", "steps.list.element.input_seconds", "series.list.element.values")
_ENCODINGS = {
    **{f"{name}.list.element": "DELTA_BINARY_PACKED" for name in _TIMES},
    **{f"{name}.list.element": "BYTE_STREAM_SPLIT" for name in _VALUES},
}


def _schema(pa: Any) -> Any:
    text, whole, number, time = pa.string(), pa.int64(), pa.float64(), pa.timestamp("us", "UTC")
    summary = {
        "seconds": number, "p10_seconds": number, "p90_seconds": number, "steps": whole,
        "warm_up_steps": whole, "variation": number, "input_share": number, "source": text,
    }  # fmt: skip
    prediction = {
        "made_at": time, "version": text, "knowledge": text, "p10_seconds": number, "p50_seconds": number,
        "p90_seconds": number, "memory_bytes": number, "answer": text,
    }  # fmt: skip
    environment = {
        "device": text, "device_name": text, "devices_per_node": whole, "nodes": whole, "cpu": text,
        "cores": whole, "memory_bytes": whole, "driver": text, "topology": text, "versions": text,
    }  # fmt: skip
    steps = {
        "worker": whole, "node": whole, "ends": pa.list_(whole), "seconds": pa.list_(number),
        "input_seconds": pa.list_(number),
    }  # fmt: skip
    series = {
        "resource": text, "worker": whole, "node": whole, "label": text, "seconds": pa.list_(whole),
        "values": pa.list_(number),
    }  # fmt: skip
    columns = {
        "id": text, "started_at": time, "seconds": number, "status": text, "exit_code": whole, "model": text,
        "command": pa.list_(text), "setting": text, "environment": _struct(pa, environment),
        "provenance": text, "summary": _struct(pa, summary), "prediction": _struct(pa, prediction),
        "steps": pa.list_(_struct(pa, steps)), "series": pa.list_(_struct(pa, series)), "message": text,
        "campaign": text, "trial": text,
    }  # fmt: skip
    return pa.schema(list(columns.items()), metadata={_KEY: FORMAT})


def _struct(pa: Any, fields: dict[str, Any]) -> Any:
    return pa.struct(list(fields.items()))


def _row(run: Run) -> dict[str, Any]:
    """The columns of a run."""
    row = plain(run)
    made = row["prediction"]
    return {
        **row,
        "started_at": run.started_at,
        "model": _decodable(str(row["setting"].get("model", ""))),
        "command": [_decodable(word) for word in row["command"]],
        "setting": _json(row["setting"]),
        "environment": {**row["environment"], "versions": _json(row["environment"]["versions"])},
        "prediction": made
        and {**made, "made_at": run.prediction and run.prediction.made_at, "answer": _json(made["answer"])},
        "steps": [
            {**each, "ends": _ticks(steps.ends)} for each, steps in zip(row["steps"], run.steps, strict=True)
        ],
        "series": [
            {**each, "seconds": _ticks(series.seconds)}
            for each, series in zip(row["series"], run.series, strict=True)
        ],
    }


def _fields(row: dict[str, Any]) -> dict[str, Any]:
    """The fields of a run, of its columns."""
    made = row["prediction"]
    return {
        **row,
        "setting": json.loads(row["setting"]),
        "environment": {**row["environment"], "versions": json.loads(row["environment"]["versions"])},
        "prediction": made and {**made, "answer": json.loads(made["answer"])},
        "steps": [{**each, "ends": _seconds(each["ends"])} for each in row["steps"]],
        "series": [{**each, "seconds": _seconds(each["seconds"])} for each in row["series"]],
    }


def _ticks(seconds: Any) -> Any:
    return np.rint(seconds * _TICKS_PER_SECOND).astype(np.int64)


def _seconds(ticks: list[int]) -> list[float]:
    return [tick / _TICKS_PER_SECOND for tick in ticks]


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), default=str)


def _decodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
