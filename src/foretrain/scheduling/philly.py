"""Replay of the public Philly trace: jobs of a production GPU cluster as a scheduling problem.

The trace has `timestamp`, `duration` and `num_gpus` of each job, and neither models, deadlines nor what a
second of lateness costs. The mapping to a problem:

- submission: `timestamp`, counted from the first one.
- time: `duration` on `num_gpus` GPUs of the reference GPU. Up to a whole node a job may run on fewer or more
  GPUs; the ratio of times is that of a job of Ardagna's table, chosen by the GPU time of the trace's job:
  below 1 h alexnet (JJ4), below 10 h deepspeech2 (JJ1), below 100 h vgg19 (JJ2), else resnet50 (JJ5). Four
  classes by GPU time are those of Pollux (Qiao et al., OSDI 2021); which model stands for each is our choice.
  These models scale badly, so a job never gets much faster than it was.
- jobs on more GPUs than a node has span the whole nodes they need, at the trace's duration alone.
- deadline and weight: drawn by seed as in the generated families (`generators`).

Jobs are read and drawn in order of submission.
"""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path

import numpy as np

from foretrain.errors import InvalidData, InvalidRequest, MissingData
from foretrain.scheduling.generators import SLACK, WEIGHT_USD_PER_SECOND, study_types, table_times
from foretrain.scheduling.problem import Configuration, Fleet, NodeGroup, NodeType, Problem, SubmittedJob
from foretrain.units import HOUR

COLUMNS = ("timestamp", "duration", "num_gpus")
REFERENCE_GPU = "gtx1080ti"
_CLASSES = ((HOUR, "JJ4"), (10 * HOUR, "JJ1"), (100 * HOUR, "JJ2"), (math.inf, "JJ5"))
_NODES = 311
"""Nodes of eight GPUs for the 2,490 GPUs of the trace's cluster (Jeon et al., USENIX ATC 2019)."""


@dataclass(frozen=True, slots=True)
class TraceRow:
    """A job of the trace."""

    submitted: datetime
    seconds: float
    gpus: int


def trace_fleet(nodes: int | None = None) -> Fleet:
    """An owned cluster of nodes with eight GTX 1080 Ti (in-house server 2 of `study_types`)."""
    node_type = study_types()["server-2"]
    return Fleet({node_type.name: node_type}, (NodeGroup(nodes or _NODES, (node_type.name,)),))


def trace_problem(file: Path, fleet: Fleet, seed: int = 0, most_jobs: int | None = None) -> Problem:
    """The jobs of a trace on a fleet; the first `most_jobs` of them by submission, if given."""
    rows = sorted(read_trace(file), key=lambda row: row.submitted)[:most_jobs]
    random = np.random.default_rng(seed)
    slack = random.uniform(*SLACK, len(rows)).tolist()
    weights = random.uniform(*WEIGHT_USD_PER_SECOND, len(rows)).tolist()
    start = rows[0].submitted if rows else None
    jobs = []
    for number, (row, factor, weight) in enumerate(zip(rows, slack, weights, strict=True), 1):
        seconds = {
            configuration: row.seconds * ratio
            for configuration, ratio in _ratios(
                _kind(row), row.gpus, _Types(tuple(fleet.types.values()))
            ).items()
        }
        assert start is not None
        submit = (row.submitted - start).total_seconds()
        jobs.append(
            SubmittedJob(
                name=f"{number:05d}",
                submit_seconds=submit,
                deadline_seconds=submit + factor * min(seconds.values(), default=row.seconds),
                weight_usd_per_second=weight,
                seconds=seconds,
            )
        )
    return Problem(tuple(jobs), fleet)


def read_trace(file: Path) -> Iterator[TraceRow]:
    """The rows of a trace, `.csv` or `.csv.gz`; a malformed one raises `InvalidData` with the row."""
    opened = gzip.open if file.suffix == ".gz" else open
    try:
        with opened(file, "rt", encoding="utf-8", newline="") as stream:
            lines = csv.DictReader(stream)
            missing = [name for name in COLUMNS if name not in (lines.fieldnames or ())]
            if missing:
                raise InvalidData(str(file), f"lacks the column {', '.join(missing)}", 1)
            for line in lines:
                yield _row(file, lines.line_num, line)
    except FileNotFoundError:
        raise MissingData(
            f"there is no file {str(file)!r}; give a .csv or .csv.gz of {','.join(COLUMNS)}"
        ) from None
    except IsADirectoryError:
        raise InvalidRequest(f"{str(file)!r} is a folder; name a CSV file") from None
    except (UnicodeDecodeError, csv.Error, gzip.BadGzipFile, EOFError) as error:
        raise InvalidData(str(file), f"is not a CSV file: {error}") from error


def _row(file: Path, number: int, line: Mapping[str, str]) -> TraceRow:
    try:
        row = TraceRow(
            datetime.fromisoformat(line["timestamp"]), float(line["duration"]), int(line["num_gpus"])
        )
    except (ValueError, TypeError) as error:
        raise InvalidData(str(file), f"cannot be read: {error}", number) from error
    if not (math.isfinite(row.seconds) and row.seconds > 0 and row.gpus > 0):
        raise InvalidData(
            str(file), f"lasts {row.seconds} s on {row.gpus} GPUs; both must be above 0", number
        )
    return row


def _kind(row: TraceRow) -> str:
    """The job of Ardagna's table whose scaling stands for this one."""
    return next(kind for most, kind in _CLASSES if row.gpus * row.seconds < most)


@dataclass(frozen=True)
class _Types:
    """Node types as a key of a cache."""

    types: tuple[NodeType, ...]


@lru_cache(maxsize=4096)
def _ratios(kind: str, gpus: int, key: _Types) -> dict[Configuration, float]:
    """Times relative to the trace's duration. Equal jobs share their configurations, which saves memory."""
    table = table_times()[kind].seconds
    ratios: dict[Configuration, float] = {}
    for node in key.types:
        if gpus > node.gpus:
            ratios[Configuration(node.name, node.gpus, math.ceil(gpus / node.gpus))] = 1.0
            continue
        base = table.get((REFERENCE_GPU, gpus))
        for count in range(1, node.gpus + 1):
            seconds = table.get((node.gpu, count))
            if count == gpus and (base is None or seconds is None):
                ratios[Configuration(node.name, count)] = 1.0
            elif base is not None and seconds is not None:
                ratios[Configuration(node.name, count)] = seconds / base
    return ratios
