"""Measured operators and collectives as frozen records, and the keys that splits are made by."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foretrain.errors import MissingData
from foretrain.prediction.collectives.costs import Verb
from foretrain.prediction.operators.pricing import Flags, Floats, WorkTable, table
from foretrain.workloads.ops import Work

Names = NDArray[np.str_]


@dataclass(frozen=True, eq=False)
class Measurements:
    """Works, the device each ran on, the seconds measured, and the operator's name in the data set."""

    source: str
    works: tuple[Work, ...]
    device_ids: Names
    seconds: Floats
    labels: Names

    def __len__(self) -> int:
        return len(self.works)

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices measured, in order of name."""
        return tuple(sorted(set(self.device_ids.tolist())))

    @cached_property
    def table(self) -> WorkTable:
        """The works in columns."""
        return table(self.works)

    def fold(self, folds: int) -> NDArray[np.int64]:
        """Which of `folds` parts each work falls into: all measurements of one shape into the same."""
        return np.array([shape_key(work) % folds for work in self.works], np.int64)

    def where(self, chosen: Flags) -> Measurements:
        """Only the chosen rows."""
        works = tuple(work for work, keep in zip(self.works, chosen, strict=True) if keep)
        return replace(
            self,
            works=works,
            device_ids=self.device_ids[chosen],
            seconds=self.seconds[chosen],
            labels=self.labels[chosen],
        )


def measurements(
    source: str,
    works: Sequence[Work],
    device_ids: Sequence[str],
    seconds: Sequence[float],
    labels: Sequence[str],
) -> Measurements:
    """Measurements from plain columns."""
    return Measurements(
        source, tuple(works), np.array(device_ids, str), np.array(seconds, float), np.array(labels, str)
    )


def measurements_of(source: str, cases: Iterable[tuple[Work, str, float, str]]) -> Measurements:
    """Measurements from rows of work, device, seconds and label."""
    listed = tuple(cases)
    return measurements(
        source,
        [work for work, _, _, _ in listed],
        [device_id for _, device_id, _, _ in listed],
        [seconds for _, _, seconds, _ in listed],
        [label for _, _, _, label in listed],
    )


def shape_key(work: Work) -> int:
    """A number that is the same for all works of one kind and shape, on any machine and any day."""
    return zlib.crc32(repr((work.kind.value, sorted(work.dims.items()))).encode())


def rows(file: Path) -> Iterator[dict[str, str]]:
    """The rows of a (compressed) CSV file; a missing one raises `MissingData`."""
    if not file.is_file():
        raise MissingData(
            f"no {file.name} in {file.parent}; name the folder of public measurements with --data"
        )
    with gzip.open(file, "rt", newline="") if file.suffix == ".gz" else file.open(newline="") as lines:
        yield from csv.DictReader(lines)


@dataclass(frozen=True, slots=True)
class CollectiveTime:
    """One collective inside one node. `machine` is hardware as people write it, `topology` that of its links.

    `bytes` is the whole message, as in `Verb`; `sums` says that the switch can sum numbers of that type.
    """

    source: str
    machine: str
    topology: str
    verb: Verb
    devices: int
    bytes: float
    seconds: float
    sums: bool = True


def powers_of_two(times: Iterable[CollectiveTime], unit: int) -> tuple[CollectiveTime, ...]:
    """Only messages of a power of two units, where a data set steps through sizes evenly."""
    return tuple(time for time in times if _is_power(time.bytes / unit))


def _is_power(count: float) -> bool:
    whole = int(count)
    return whole == count and whole > 0 and whole & (whole - 1) == 0
