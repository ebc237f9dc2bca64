"""A table of timings as a sample to learn from: columns typed and checked, repeats reduced to their median.

It is read from a CSV file, or made of stored runs: their settings and environment, with the step time as the
target. Columns are numbers if every cell is one. What a regression would only stumble over is refused with
the rows named: missing values, text among numbers, a target that is constant or not above 0, too few rows,
and columns that were measured together with the target (a throughput, the time of the epoch) and so give it
away.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from foretrain.errors import InvalidData, InvalidRequest, MissingData, UnknownName
from foretrain.learning.regression.columns import (
    BATCH,
    DEVICE,
    GPUS,
    PREDICTED,
    TEXT_ROLES,
    Feature,
    Schema,
    role_of,
    with_device_figures,
)
from foretrain.prediction.operators.pricing import Floats
from foretrain.store.runs import Run, Status
from foretrain.ties import round_digits

LEAST_CONFIGURATIONS = 3
"""Two configurations fit any line exactly."""
_MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "-"})
_SHOWN = 5
_MOST_CATEGORIES = 50
"""A column with more texts names its rows, as ids and dates do, instead of describing them."""
_LEAKED = 0.002
"""Standard deviation of log(target) left by a column (times batch and GPUs) that leaks it."""
_LEAST_FOR_LEAKS = 5
"""Of fewer rows a product of batch, GPUs and another column equals the target by chance."""
FIRST_ROW = 2
"""The row of a CSV file after its header, as editors number it."""
STEP_SECONDS = "step_seconds"
RUN_SECONDS = "run_seconds"


@dataclass(frozen=True, eq=False)
class TimingTable:
    """Cells by column, as they were read; `first_row` numbers them in messages."""

    source: str
    columns: Mapping[str, tuple[Any, ...]]
    first_row: int = 1

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def rows(self) -> list[dict[str, Any]]:
        """The table row by row."""
        return [
            dict(zip(self.columns, cells, strict=True))
            for cells in zip(*self.columns.values(), strict=True)
        ]  # fmt: skip

    def with_column(self, name: str, cells: Sequence[Any]) -> TimingTable:
        """The table with one more column."""
        return replace(self, columns={**self.columns, name: tuple(cells)})

    def take(self, rows: Sequence[int]) -> TimingTable:
        """Some of the rows."""
        return replace(self, columns={name: tuple(c[r] for r in rows) for name, c in self.columns.items()})


@dataclass(frozen=True, eq=False)
class Sample:
    """What is learned from: encoded features and the measured target of each configuration.

    `measured` is the median of its repeats. `notes` say what was left out on the way.
    """

    source: str
    target: str
    schema: Schema
    rows: Floats
    measured: Floats
    timings: int = 0
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # nine digits: trees and terms that enter one by one would turn the last bit into another model
        object.__setattr__(self, "rows", round_digits(self.rows))
        object.__setattr__(self, "measured", round_digits(self.measured))

    def __len__(self) -> int:
        return len(self.measured)

    def take(self, chosen: Any) -> Sample:
        """Some of the configurations (indices or flags)."""
        return replace(self, rows=self.rows[chosen], measured=self.measured[chosen])

    def column(self, name: str) -> Floats:
        """One encoded column."""
        values: Floats = self.rows[:, self.schema.place(name)]
        return values


def read_table(file: Path) -> TimingTable:
    """The cells of a CSV file; ragged rows and repeated columns are errors."""
    if not file.is_file():
        raise MissingData(f"no table {file}; give a CSV file with a header, one row for each timing")
    try:
        with file.open(newline="", encoding="utf-8-sig") as text:
            lines = [(reader.line_num, cells) for reader in [csv.reader(text)] for cells in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidData(str(file), f"is not a CSV file in UTF-8: {error}") from error
    header = [name.strip() for name in lines[0][1]] if lines else []
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice or not header or "" in header:
        problem = f"repeated columns {', '.join(map(repr, twice))}" if twice else "a column without a name"
        problem = (
            f"{problem}; name each column once in the first row" if header else "is empty; it needs a header"
        )
        raise InvalidData(str(file), problem, row=1)
    kept = [(number, cells) for number, cells in lines[1:] if any(cell.strip() for cell in cells)]
    for number, cells in kept:
        if len(cells) != len(header):
            raise InvalidData(str(file), f"{len(cells)} cells where the header has {len(header)}", row=number)
    if not kept:
        raise InvalidData(str(file), "holds a header and no rows; add one for each timing")
    columns = zip(*(cells for _, cells in kept), strict=True)
    stripped = (tuple(cell.strip() for cell in cells) for cells in columns)
    return TimingTable(str(file), dict(zip(header, stripped, strict=True)), FIRST_ROW)


def table_of(rows: Sequence[Mapping[str, Any]], source: str = "rows") -> TimingTable:
    """A table from plain rows; a cell a row does not have is missing."""
    names = dict.fromkeys(name for row in rows for name in row)
    if not rows or not names:
        raise MissingData(f"{source}: there are no rows to learn from")
    return TimingTable(source, {name: tuple(row.get(name) for row in rows) for name in names})


def sample_of(
    table: TimingTable, target: str, features: Sequence[str] = (), drop_missing: bool = False
) -> Sample:
    """The sample of a table; `features` restricts the columns, and keeps those that look measured."""
    chosen = _choose_columns(table, target, features)
    table, notes = _complete(table, (target, *chosen), drop_missing)
    measured = _numbers(table, target, table.columns[target])
    _check_target(table, target, measured)
    kept, dropped = _usable(table, chosen, bool(features))
    notes += dropped
    schema, encoded = _encode_columns(kept)
    if not schema.features:
        raise InvalidRequest(
            f"{table.source}: no column but {target!r} varies; a regression needs one that does"
        )
    sample = Sample(table.source, target, schema, encoded, measured, len(measured), notes)
    leaks = _leaks(sample)
    if leaks and not features:
        raise InvalidRequest(
            f"{table.source}: {', '.join(map(repr, leaks))} leaks the target {target!r}: equal within "
            f"{_LEAKED:.1%}, so it was probably measured together with it. Select the feature columns with "
            "`features`: "
            f"{','.join(name for name in chosen if name not in leaks)}"
        )
    if leaks:
        note = f"{', '.join(leaks)} leaks the target (nearly equal); kept because `features` names it"
        sample = replace(sample, notes=(*sample.notes, note))
    return _medians(sample)


def _choose_columns(table: TimingTable, target: str, features: Sequence[str]) -> tuple[str, ...]:
    for name in (target, *features):
        if name not in table.columns:
            raise UnknownName(
                f"column of {table.source}", name, table.columns, f"Columns: {', '.join(table.columns)}"
            )
    if target in features:
        raise InvalidRequest(f"{target!r} is the target; it cannot be one of the `features`")
    return tuple(features) or tuple(name for name in table.columns if name != target)


def _complete(table: TimingTable, names: Sequence[str], drop: bool) -> tuple[TimingTable, tuple[str, ...]]:
    gaps = {
        name: [row for row, cell in enumerate(table.columns[name]) if _is_missing(cell)] for name in names
    }
    gaps = {name: rows for name, rows in gaps.items() if rows}
    if not gaps:
        return table, ()
    listed = "; ".join(
        f"{name!r} in {len(rows)} of {len(table)} rows ({_list_rows(table, rows)})"
        for name, rows in gaps.items()
    )
    if not drop:
        raise InvalidData(
            table.source,
            f"missing values: {listed}. Fill them in, leave the column out of `features`, or leave such rows "
            "out with `drop_missing`",
        )
    without = {row for rows in gaps.values() for row in rows}
    if len(without) == len(table):
        raise InvalidData(table.source, f"every row has missing values: {listed}")
    note = f"{len(without)} rows with missing values are left out"
    return table.take([row for row in range(len(table)) if row not in without]), (note,)


def _is_missing(cell: Any) -> bool:
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return True
    return isinstance(cell, str) and cell.strip().casefold() in _MISSING


def _list_rows(table: TimingTable, rows: Sequence[int]) -> str:
    shown = ", ".join(str(row + table.first_row) for row in rows[:_SHOWN])
    return f"row{'s' if len(rows) > 1 else ''} {shown}{', ...' if len(rows) > _SHOWN else ''}"


def _parse_cell(cell: Any) -> float | None:
    if isinstance(cell, bool):
        return float(cell)
    try:
        value = float(cell)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None


def _numbers(table: TimingTable, name: str, cells: Sequence[Any]) -> Floats:
    values = [_parse_cell(cell) for cell in cells]
    wrong = [row for row, value in enumerate(values) if value is None]
    if wrong:
        seen = ", ".join(repr(cells[row]) for row in wrong[:_SHOWN])
        raise InvalidData(
            table.source,
            f"{name!r} must hold numbers, but {len(wrong)} of {len(cells)} cells do not: {seen} "
            f"({_list_rows(table, wrong)})",
        )
    return np.array(values, float)


def _check_target(table: TimingTable, target: str, measured: Floats) -> None:
    low = np.flatnonzero(measured <= 0).tolist()
    if low:
        raise InvalidData(
            table.source,
            f"the target {target!r} must be above 0 (errors are relative); it is {measured[low[0]]:g} and "
            f"less in {_list_rows(table, low)}",
        )
    if len(measured) > 1 and measured.max() <= measured.min() * (1 + 1e-12):
        raise InvalidRequest(
            f"{table.source}: the target {target!r} is {measured[0]:g} in all {len(measured)} rows: there is "
            "nothing to learn"
        )


def _usable(
    table: TimingTable, names: Sequence[str], is_asked: bool
) -> tuple[dict[str, tuple[Any, ...]], tuple[str, ...]]:
    """Columns by name, those that identify rows left out."""
    kept, notes = {}, []
    for name in names:
        cells = table.columns[name]
        is_number = [_parse_cell(cell) is not None for cell in cells]
        is_text = not any(is_number) or role_of(name) in TEXT_ROLES
        if not is_text:
            kept[name] = tuple(_numbers(table, name, cells).tolist())
            continue
        different = len({str(cell) for cell in cells})
        if different > _MOST_CATEGORIES or (len(cells) > _SHOWN and different == len(cells)):
            if is_asked:
                raise InvalidRequest(
                    f"{table.source}: {name!r} has {different} different texts in {len(cells)} rows: it "
                    "names rows and cannot be learned from"
                )
            notes.append(f"{name} is left out: {different} different texts in {len(cells)} rows")
            continue
        kept[name] = tuple(str(cell) for cell in cells)
    return kept, tuple(notes)


def _encode_columns(columns: Mapping[str, tuple[Any, ...]]) -> tuple[Schema, Floats]:
    """The schema of columns that vary, and the rows by it; devices get their figures."""
    plain = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    figured: list[dict[str, Any]] = [dict(with_device_figures(row)) for row in plain]
    names = dict.fromkeys(name for row in figured for name in row)
    complete = [name for name in names if all(name in row for row in figured)]
    features, fixed = [], {}
    for name in complete:
        values = [row[name] for row in figured]
        if len(set(values)) == 1:
            fixed[name] = values[0]
        elif isinstance(values[0], str):
            features.append(Feature(name, tuple(sorted(set(values))), of_device=name not in columns))
        else:
            features.append(Feature(name, (), min(values), max(values), name not in columns))
    known = {name for name in fixed if name in columns}
    schema = Schema(tuple(features), {name: value for name, value in fixed.items() if name in known})
    return schema, schema.encode(figured)


def _leaks(sample: Sample) -> tuple[str, ...]:
    """Columns that are the target, or a product or quotient of it with batch and GPUs, but for rounding."""
    if len(sample) < _LEAST_FOR_LEAKS:
        return ()
    design = [
        np.log(sample.column(each.name))
        for each in sample.schema.features
        if each.role in (BATCH, GPUS) and each.low > 0
    ]
    target = np.log(sample.measured)
    return tuple(
        each.name
        for each in sample.schema.numbers(without=(PREDICTED, DEVICE))
        if _looks_measured(sample, each) and _gives_away(target, np.log(sample.column(each.name)), design)
    )


def _looks_measured(sample: Sample, feature: Feature) -> bool:
    """Continuous: neither whole numbers nor a few values, as settings are."""
    values = sample.column(feature.name)
    is_whole = bool(np.all(values == np.round(values)))
    different = len(np.unique(values))
    configurations = len(np.unique(np.delete(sample.rows, sample.schema.place(feature.name), axis=1), axis=0))
    return feature.low > 0 and not is_whole and not feature.of_device and different >= configurations


def _gives_away(target: Floats, column: Floats, design: Sequence[Floats]) -> bool:
    for sign in (1, -1):
        for powers in product((0, 1, -1), repeat=len(design)):
            left = target - sign * column
            for power, values in zip(powers, design, strict=True):
                left = left - power * values
            if float(np.std(left)) < _LEAKED:
                return True
    return False


def _medians(sample: Sample) -> Sample:
    """Equal configurations as one, with the median of their target."""
    different, inverse = np.unique(sample.rows, axis=0, return_inverse=True)
    if len(different) < LEAST_CONFIGURATIONS:
        raise MissingData(
            f"{sample.source}: {sample.timings} rows of {len(different)} different configurations are too "
            f"few for a regression: give at least {LEAST_CONFIGURATIONS} that differ in "
            f"{', '.join(sample.schema.names)}"
        )
    if len(different) == len(sample):
        return sample
    groups: dict[int, list[float]] = {}
    for place, value in zip(np.ravel(inverse).tolist(), sample.measured.tolist(), strict=True):
        groups.setdefault(place, []).append(value)
    measured = np.array([median(groups[place]) for place in range(len(different))])
    note = f"{sample.timings} rows are {len(different)} configurations: repeats are reduced to their median"
    return replace(sample, rows=different, measured=measured, notes=(*sample.notes, note))


def table_of_runs(runs: Sequence[Run], source: str, target: str = STEP_SECONDS) -> TimingTable:
    """A row for every completed run with step times; settings that only some runs have are left out."""
    rows = [_row(run, target) for run in runs if run.status is Status.COMPLETED and run.summary is not None]
    if not rows:
        raise MissingData(
            f"{source}: none of the {len(runs)} runs is completed and has step times; `foretrain measure` "
            "and `foretrain campaign` store some"
        )
    common = [name for name in rows[0] if all(row.get(name) is not None for row in rows)]
    return table_of([{name: row[name] for name in common} for row in rows], source)


def _row(run: Run, target: str) -> dict[str, Any]:
    assert run.summary is not None, "checked by the caller"
    environment = run.environment
    measured = run.seconds if target == RUN_SECONDS else run.summary.seconds
    setting = {name: value for name, value in run.setting.items() if isinstance(value, str | int | float)}
    setting.pop("on", None)
    return {
        **setting,
        DEVICE: environment.device,
        GPUS: environment.devices_per_node * environment.nodes,
        "nodes": environment.nodes,
        PREDICTED: None if run.prediction is None else run.prediction.p50_seconds,
        target: measured,
    }
