"""The columns of a table of timings: what each one is, and a row of them as numbers.

A column holds numbers or text. Text is coded by its place among the categories seen; -1 is a category never
seen. Well-known columns have a role, whatever a table calls them: roles decide which power of a feature is
natural, what an extrapolation leaves out, and how a saved model answers a question about a job. A `device`
that foretrain knows adds its figures (`gflop_per_second`, `memory_gb_per_second`, `device_generation`), so
that a model may reach devices that were never timed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from foretrain.errors import InvalidRequest, MissingData, UnknownName
from foretrain.facts.devices import devices
from foretrain.prediction.operators.pricing import Floats

BATCH, GPUS, DEVICE, MODEL, DEPTH = "batch", "gpus", "device", "model", "depth"
ITERATIONS, THREADS, DISK_DELAY, PREDICTED = (
    "iterations",
    "threads",
    "disk_delay_seconds",
    "predicted_seconds",
)
GFLOP, BANDWIDTH, GENERATION = "gflop_per_second", "memory_gb_per_second", "device_generation"
_ALIASES: Mapping[str, tuple[str, ...]] = {
    BATCH: ("batch", "batch_size", "batchsize", "batch_per_gpu", "batch_per_device"),
    GPUS: ("gpus", "ngpu", "ngpus", "num_gpus", "gpu_count", "devices", "workers"),
    DEVICE: ("device", "gpu", "gpu_type", "device_name"),
    MODEL: ("model", "network", "model_name"),
    DEPTH: ("depth", "inner_modules", "blocks", "num_layers", "modules"),
    ITERATIONS: ("iterations", "steps", "num_steps"),
    THREADS: ("threads", "loader_workers", "num_workers"),
    DISK_DELAY: ("disk_delay_seconds", "disk_delay"),
    GFLOP: ("gflop_per_second", "gflops", "gflop_s"),
    BANDWIDTH: ("memory_gb_per_second",),
    PREDICTED: ("predicted_seconds",),
}
TEXT_ROLES = frozenset({DEVICE, MODEL})
NATURAL_POWER: Mapping[str, int] = {GFLOP: -1, BANDWIDTH: -1, THREADS: -1}
"""How time goes with a feature where that is not proportional: against the speed."""
UNSEEN = -1.0
"""The code of a text that was not in the table; those that were are counted from 0."""
_SAME = 1e-9


def role_of(column: str) -> str | None:
    """The role of a column by its name."""
    key = column.strip().casefold().replace(" ", "_").replace("-", "_")
    return next((role for role, names in _ALIASES.items() if key in names), None)


@dataclass(frozen=True)
class Feature:
    """A column that a model may use: numbers in a range, or categories; `of_device`: looked up by device."""

    name: str
    categories: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    of_device: bool = False

    @property
    def is_text(self) -> bool:
        """Whether it holds categories."""
        return bool(self.categories)

    @property
    def role(self) -> str | None:
        """The role by its name."""
        return role_of(self.name)


@dataclass(frozen=True)
class Schema:
    """The features of a table in order, and the columns that had one value in all rows (`fixed`)."""

    features: tuple[Feature, ...]
    fixed: Mapping[str, float | str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Of all features."""
        return tuple(feature.name for feature in self.features)

    def place(self, name: str) -> int:
        """The column of a feature."""
        return self.names.index(name)

    def with_role(self, role: str) -> Feature | None:
        """The feature of a role, None if no column that varies has it."""
        return next((feature for feature in self.features if feature.role == role), None)

    def numbers(self, without: Iterable[str] = (PREDICTED,)) -> tuple[Feature, ...]:
        """The features of numbers, without those of some roles."""
        left_out = frozenset(without)
        return tuple(each for each in self.features if not each.is_text and each.role not in left_out)

    @property
    def texts(self) -> tuple[Feature, ...]:
        """The features of categories that the table itself has."""
        return tuple(each for each in self.features if each.is_text and not each.of_device)

    def encode(self, rows: Sequence[Mapping[str, object]]) -> Floats:
        """Rows as numbers; a row without a column, or with an unknown category, is an error."""
        matrix = np.zeros((len(rows), len(self.features)))
        for index, row in enumerate(rows):
            given = with_device_figures(row)
            self._check_fixed(given)
            for place, feature in enumerate(self.features):
                matrix[index, place] = self._coded(feature, given)
        return matrix

    def _coded(self, feature: Feature, row: Mapping[str, object]) -> float:
        value = lookup(row, feature.name)
        if value is None:
            raise MissingData(
                f"the model needs {feature.name!r}; given are {', '.join(map(repr, row)) or 'no columns'}"
            )
        if not feature.is_text:
            return _finite(feature.name, value)
        text = str(value)
        if text in feature.categories:
            return float(feature.categories.index(text))
        if feature.of_device or (feature.role == DEVICE and any(each.of_device for each in self.features)):
            return UNSEEN
        raise UnknownName(
            f"{feature.name} among those timed",
            text,
            feature.categories,
            f"Timed: {', '.join(feature.categories)}",
        )

    def _check_fixed(self, row: Mapping[str, object]) -> None:
        off = [
            f"{name} {given} (all timings: {value})"
            for name, value in self.fixed.items()
            if (given := lookup(row, name)) is not None and not _equal(given, value)
        ]
        if off:
            raise InvalidRequest(
                f"the model cannot predict {', '.join(off)}; add timings in which that differs"
            )

    def outside(self, row: Floats) -> tuple[str, ...]:
        """The features of an encoded row that lie beyond what was timed, in words."""
        beyond = []
        for feature, value in zip(self.features, row.tolist(), strict=True):
            if feature.is_text and value == UNSEEN and not feature.of_device:
                beyond.append(f"{feature.name} was never timed")
            elif not feature.is_text and not feature.of_device and _is_beyond(feature, value):
                beyond.append(f"{feature.name} {value:g} (timed: {feature.low:g} to {feature.high:g})")
        return tuple(beyond)


def lookup(row: Mapping[str, object], name: str) -> object | None:
    """The value of a column: by its name, else by its role."""
    if name in row:
        return row[name]
    role = role_of(name)
    return next((value for key, value in row.items() if role is not None and role_of(key) == role), None)


def with_device_figures(row: Mapping[str, object]) -> Mapping[str, object]:
    """A row with the id and the figures of its device, where foretrain knows it."""
    column = next((key for key in row if role_of(key) == DEVICE), None)
    known = None if column is None else device_figures(str(row[column]))
    if column is None or known is None:
        return row
    name, figures = known
    return {**figures, **row, column: name}


def device_figures(name: str) -> tuple[str, dict[str, float | str]] | None:
    """Id, FP32 peak, memory bandwidth and generation of a device; None for a name foretrain does not know."""
    if name not in devices():
        return None
    known = devices()[name]
    peak = known.sheet.number("fp32_flop_per_second") / 1e9
    bandwidth = known.memory_bytes_per_second / 1e9
    return known.id, {GFLOP: peak, BANDWIDTH: bandwidth, GENERATION: known.generation}


def _is_beyond(feature: Feature, value: float) -> bool:
    room = _SAME * max(abs(feature.low), abs(feature.high), 1.0)
    return value < feature.low - room or value > feature.high + room


def _finite(name: str, value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InvalidRequest(f"{name} is {value!r}, not a number") from None
    if not math.isfinite(number):
        raise InvalidRequest(f"{name} is {value!r}; it must be finite")
    return number


def _equal(given: object, value: float | str) -> bool:
    if isinstance(value, str):
        return str(given) == value
    return abs(_finite("value", given) - value) <= _SAME * max(abs(value), 1.0)
