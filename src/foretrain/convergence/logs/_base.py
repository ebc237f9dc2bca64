"""What a log is once read: numbers by column, and which column counts the steps."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from foretrain.convergence.curves import Curve, Floats, MetricDirection, curve_of
from foretrain.errors import InvalidData, InvalidRequest, UnknownName

STEP_NAMES = (
    "step", "steps", "global_step", "iteration", "iter", "train/global_step", "trainer/global_step", "_step",
)  # fmt: skip
RATE_NAMES = ("learning_rate", "lr", "lr0", "pg0", "lr_adamw", "lr_adam", "lr_sgd")
EPOCH_NAMES = ("epoch", "epochs", "train/epoch")
OF_RUN = " - "
"""Between the name of a run and that of its metric, as Weights & Biases exports them."""


@dataclass(frozen=True)
class Log:
    """Columns of equal length; `counter` is the column of steps (or epochs).

    NaN is a cell without a value, an infinity one that was logged and is not finite.
    """

    file: str
    columns: Mapping[str, Floats]
    counter: str
    planned_steps: float | None = None

    @property
    def metrics(self) -> tuple[str, ...]:
        """The columns a target can be set for."""
        counters = {*STEP_NAMES, *EPOCH_NAMES}
        return tuple(name for name in self.columns if name.lower() not in counters)

    @property
    def unit(self) -> str:
        """What the counter counts: step or epoch."""
        return "epoch" if self.counter.lower() in EPOCH_NAMES else "step"

    @property
    def learning_rates(self) -> tuple[Floats, Floats] | None:
        """Steps and logged learning rates; None where the log has no such column."""
        for name in self.columns:
            metric = name.rpartition(OF_RUN)[2].lower().replace("-", "_")
            if metric.rpartition("/")[2] in RATE_NAMES:
                rates = self.columns[name]
                there = np.isfinite(rates) & np.isfinite(self.columns[self.counter])
                return self.columns[self.counter][there], rates[there]
        return None

    @property
    def steps_per_epoch(self) -> float | None:
        """Steps of an epoch where the log counts both."""
        epochs = next((self.columns[name] for name in self.columns if name.lower() in EPOCH_NAMES), None)
        if epochs is None or self.unit == "epoch":
            return None
        there = np.isfinite(epochs) & np.isfinite(self.columns[self.counter]) & (epochs > 0)
        if not there.any():
            return None
        ratio = float(self.columns[self.counter][there][-1] / epochs[there][-1])
        return ratio if ratio > 0 else None

    def curve(self, metric: str, direction: MetricDirection | None = None, group: str = "") -> Curve:
        """One metric over the steps, by its name or by an end of it that only one column has."""
        column = self._column(metric)
        values = self.columns[column]
        if not np.isfinite(values).any():
            raise InvalidData(
                self.file, f"column {column!r} has no number in any of its {len(values)} rows (all NaN)"
            )
        return curve_of(
            self.columns[self.counter], values, metric, direction,
            name=self.file, group=group or self.file, planned_steps=self.planned_steps,
            zero_is_first=self.unit == "epoch",
        )  # fmt: skip

    def _column(self, metric: str) -> str:
        """The column of a metric: `loss` may be `train/loss`, and that the one of the only run."""
        if metric in self.metrics:
            return metric
        ends = tuple(name for name in self.metrics if name.endswith((OF_RUN + metric, "/" + metric)))
        if len(ends) == 1:
            return ends[0]
        columns = f"Columns of {self.file}: {', '.join(self.metrics)}"
        if ends:
            raise InvalidRequest(
                f"{metric!r} is in {len(ends)} columns of {self.file}; name one whole: {', '.join(ends)}"
            )
        raise UnknownName("metric", metric, self.metrics, columns)


class LogRecord(NamedTuple):
    """One value of one metric of a run, as MLflow exports them."""

    run: str
    metric: str
    step: float
    value: float


class LogReader(ABC):
    """One form of log."""

    name: ClassVar[str]

    @abstractmethod
    def suits(self, path: Path) -> bool:
        """Whether the file has this form."""

    @abstractmethod
    def read(self, path: Path) -> Log:
        """The file's columns."""


def number(text: object, file: str, row: int, column: str) -> float:
    """A cell as a number; empty cells are NaN, what was logged as NaN or infinity is infinite."""
    if text is None or isinstance(text, bool):
        return math.nan
    if isinstance(text, int | float):
        return read_value(float(text))
    word = str(text).strip()
    if not word:
        return math.nan
    try:
        return read_value(float(word))
    except ValueError:
        raise InvalidData(file, f"column {column!r} has {word!r}, which is not a number", row) from None


def read_value(value: float) -> float:
    """A value as a log holds it: one that is not finite is infinite, since NaN stands for no value."""
    return value if math.isfinite(value) else math.inf


def log_of_rows(file: str, rows: Iterable[Mapping[str, float]], planned_steps: float | None = None) -> Log:
    """Columns out of rows that need not have the same keys."""
    listed = list(rows)
    names = dict.fromkeys(name for row in listed for name in row)
    columns = {name: np.array([row.get(name, math.nan) for row in listed], float) for name in names}
    return Log(file, columns, counter_of(file, columns), planned_steps)


def counter_of(file: str, columns: Mapping[str, Floats]) -> str:
    """The column that counts steps, else epochs."""
    by_lower = {name.lower(): name for name in columns if np.isfinite(columns[name]).any()}
    for wanted in (*STEP_NAMES, *EPOCH_NAMES):
        if wanted in by_lower:
            return by_lower[wanted]
    raise InvalidData(
        file, f"no column counts steps; name one step or epoch (found: {', '.join(columns) or 'no columns'})"
    )


def log_of_records(file: str, records: Iterable[LogRecord]) -> Log:
    """Columns out of one metric a record; where there are several runs, theirs are named by run."""
    listed = list(records)
    many = len({record.run for record in listed}) > 1
    rows: dict[float, dict[str, float]] = {}
    for record in listed:
        name = f"{record.run}{OF_RUN}{record.metric}" if many else record.metric
        rows.setdefault(record.step, {"step": record.step})[name] = record.value
    return log_of_rows(file, [rows[step] for step in sorted(rows)])


def joined(name: str, logs: Iterable[Log]) -> Log:
    """One log out of several of the same run, by step; where two have a value, the later one counts."""
    rows: dict[float, dict[str, float]] = {}
    for log in logs:
        for place, step in enumerate(log.columns[log.counter].tolist()):
            values = {column: float(values[place]) for column, values in log.columns.items()}
            row = rows.setdefault(step, {"step": step})
            row.update({column: value for column, value in values.items() if not math.isnan(value)})
    return log_of_rows(name, [rows[step] for step in sorted(rows)])
