"""Runs in files: CSV (one row per run, without series), Parquet and JSON (whole runs).

A file is written whole or not at all, and imported whole or not at all. A run keeps its id, so that importing
a file twice adds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from foretrain.errors import InvalidRequest, MissingData
from foretrain.store.exchange.csv_files import DescriptionReader, read_csv, write_csv
from foretrain.store.exchange.parquet_files import read_parquet, write_parquet
from foretrain.store.exchange.plain import read_json, write_json
from foretrain.store.runs import Run, RunQuery

if TYPE_CHECKING:
    from foretrain.store.database import Store

FORMATS = ("csv", "parquet", "json")
_CHUNK = 100
"""Runs that are in memory at a time while they are exported."""


def export_runs(store: Store, query: RunQuery, file: Path, form: str | None = None) -> int:
    """Write the runs that meet a query to a file; returns their number."""
    write: Callable[[Path, Iterator[list[Run]]], int] = {
        "csv": write_csv,
        "parquet": write_parquet,
        "json": write_json,
    }[form_of(file, form)]
    listed = [run.id for run in store.runs(query)]

    def chunks() -> Iterator[list[Run]]:
        for start in range(0, len(listed), _CHUNK):
            ids = tuple(listed[start : start + _CHUNK])
            yield store.runs(RunQuery(ids=ids), with_series=True)

    return write(file, chunks())


def import_runs(
    store: Store, file: Path, describe: DescriptionReader, form: str | None = None
) -> tuple[int, int]:
    """Add the runs of a file that are not stored; returns the number of runs in the file and of those added.

    `describe` checks the cells of a CSV file that describe a run, and returns its setting and hardware.
    """
    chosen = form_of(file, form)
    if not file.is_file():
        raise MissingData(
            f"there is no file {str(file)!r} of runs; give one that foretrain runs export wrote"
        )
    if chosen == "csv":
        runs = read_csv(file, describe)
    else:
        runs = read_parquet(file) if chosen == "parquet" else read_json(file)
    return len(runs), store.add_new(runs)


def form_of(file: Path, form: str | None) -> str:
    """The format of a file, as given or by its name; an unknown one raises `InvalidRequest`."""
    chosen = form or file.suffix.lower().removeprefix(".")
    if chosen not in FORMATS:
        raise InvalidRequest(
            f"the format of {file.name!r} is unknown: end the name in .csv, .parquet or .json, or give its "
            "`format`"
        )
    return chosen
