"""Scheduling problems of published studies: random ones by seed (`families`), and the replay of a trace.

    problem = families()["exponential"].problem(nodes=5, seed=1)

    jobs                10 per node
    deadline            submission + U(1, 3) · fastest time on the fleet
    weight              2 · U(0.0015, 0.0075) USD per second of lateness

Utilisation is the share of the fleet's GPUs that jobs keep busy at their most efficient width: low 0.3,
high 1.1, mixed alternates between 0.3 and 1.0.

The public Philly trace (`trace_problem`) has `timestamp`, `duration` and `num_gpus` of each job of a
production cluster, and neither models, deadlines nor what a second of lateness costs. The mapping to a
problem:

- submission: `timestamp`, counted from the first one.
- time: `duration` on `num_gpus` GPUs of the reference GPU. Up to a whole node a job may run on fewer or more
  GPUs; the ratio of times is that of a job of Ardagna's table, chosen by the GPU time of the trace's job:
  below 1 h alexnet (JJ4), below 10 h deepspeech2 (JJ1), below 100 h vgg19 (JJ2), else resnet50 (JJ5). Four
  classes by GPU time are those of Pollux (Qiao et al., OSDI 2021); which model stands for each is our choice.
  These models scale badly, so a job never gets much faster than it was.
- jobs on more GPUs than a node has span the whole nodes they need, at the trace's duration alone.
- deadline and weight: drawn by seed as in the generated families.

Jobs are read and drawn in order of submission.
"""

from __future__ import annotations

import csv
import gzip
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from foretrain.errors import InvalidData, InvalidRequest, MissingData
from foretrain.estimates import Quantiles
from foretrain.facts.offers import shipped_offers
from foretrain.registry import Registry
from foretrain.scheduling.problem import (
    Configuration,
    Fleet,
    Market,
    NodeGroup,
    NodeType,
    Problem,
    SubmittedJob,
    elastic,
)
from foretrain.units import HOUR

# ---------------------------------------------------------------- when jobs are submitted


class Arrivals(ABC):
    """Draws the times between submissions."""

    @abstractmethod
    def gaps(self, gpu_seconds: Sequence[float], fleet: Fleet, random: Generator) -> Sequence[float]:
        """Seconds before each submission.

        `gpu_seconds` are the least of each job, in order of submission: those of the configuration with the
        fewest, usually one GPU.
        """


@dataclass(frozen=True, slots=True)
class PoissonGaps(Arrivals):
    """Whole seconds between submissions, Poisson-distributed, as in Ardagna 2019 (means 30 s and 45 s)."""

    mean_seconds: float

    def gaps(
        self,
        gpu_seconds: Sequence[float],
        fleet: Fleet,  # noqa: ARG002
        random: Generator,
    ) -> Sequence[float]:
        """Independent of jobs and fleet."""
        return [float(each) for each in random.poisson(self.mean_seconds, len(gpu_seconds))]


@dataclass(frozen=True, slots=True)
class ExponentialGaps(Arrivals):
    """Exponential times between submissions with mean `node_seconds` / nodes."""

    node_seconds: float

    def gaps(self, gpu_seconds: Sequence[float], fleet: Fleet, random: Generator) -> Sequence[float]:
        """More nodes, more jobs per hour."""
        mean = self.node_seconds / fleet.nodes
        return [float(each) for each in random.exponential(mean, len(gpu_seconds))]


@dataclass(frozen=True, slots=True)
class UtilisationGaps(Arrivals):
    """Exponential times between submissions at which jobs keep a share of all GPUs busy.

    With `u` the share and jobs at their most efficient width,

        mean gap = mean GPU-seconds of a job / (u · GPUs of the fleet)

    Several shares alternate, each for as many jobs as there are nodes. Jobs that hurry to meet their deadline
    use more GPU-seconds than at their most efficient width, so contention sets in well below 1.
    """

    shares: tuple[float, ...]

    def gaps(self, gpu_seconds: Sequence[float], fleet: Fleet, random: Generator) -> Sequence[float]:
        """Blocks of jobs, each with its own mean."""
        mean_work = sum(gpu_seconds) / max(1, len(gpu_seconds))
        unit = random.exponential(1.0, len(gpu_seconds))
        return [
            float(draw) * mean_work / (self._share(position, fleet.nodes) * fleet.most_gpus)
            for position, draw in enumerate(unit)
        ]

    def _share(self, position: int, block: int) -> float:
        return self.shares[position // block % len(self.shares)]


# ---------------------------------------------------------------- how long they take


JOB_TABLE = ("JJ1", "JJ2", "JJ3", "JJ4", "JJ5", "JJ6")
_STAND_INS = {"JJ3": "JJ2", "JJ6": "JJ5"}
"""Jobs that differ in their framework alone from the one whose times they have."""


@dataclass(frozen=True)
class Times:
    """How long one job takes by GPU and number of GPUs, and how sure that is."""

    name: str
    seconds: Mapping[tuple[str, int], float]
    spread: Quantiles

    def on(self, fleet: Fleet) -> dict[Configuration, float]:
        """Times on every node type and number of GPUs of a fleet."""
        return {
            Configuration(node_type.name, gpus): self.seconds[node_type.gpu, gpus]
            for node_type in fleet.types.values()
            for gpus in range(1, node_type.gpus + 1)
            if (node_type.gpu, gpus) in self.seconds
        }


class JobKind(ABC):
    """Draws the times of jobs."""

    @abstractmethod
    def draw(self, random: Generator) -> Times:
        """The times of one job."""


@dataclass(frozen=True, slots=True)
class TableJobs(JobKind):
    """A job of the table (`JOB_TABLE`), its epochs multiplied by a factor uniform in `factors`.

    1 is the table as it is. A training of 90 epochs on all of ImageNet is 296 times JJ5. These jobs scale
    badly: on 8 GPUs hardly more than three times as fast as on one.
    """

    factors: tuple[float, float]

    def draw(self, random: Generator) -> Times:
        """Any job of the table with the same probability."""
        name = JOB_TABLE[int(random.integers(len(JOB_TABLE)))]
        factor = float(random.uniform(*self.factors))
        one = table_times()[_STAND_INS.get(name, name)]
        return Times(name, {key: factor * seconds for key, seconds in one.seconds.items()}, one.spread)


@dataclass(frozen=True, slots=True)
class AmdahlJobs(JobKind):
    """Synthetic jobs that scale well, by Amdahl's law with a small serial share s:

        seconds(g) = one · (s + (1 - s) / g)

    `one_gpu_seconds` (on a K80), `serial_shares` and the time on an M60 relative to a K80 are uniform.
    """

    one_gpu_seconds: tuple[float, float]
    serial_shares: tuple[float, float] = (0.01, 0.05)
    m60_over_k80: tuple[float, float] = (0.8, 1.25)
    most_gpus: int = 8

    def draw(self, random: Generator) -> Times:
        """Times on K80 and M60."""
        one = float(random.uniform(*self.one_gpu_seconds))
        serial = float(random.uniform(*self.serial_shares))
        relative = {"k80": 1.0, "m60": float(random.uniform(*self.m60_over_k80))}
        seconds = {
            (gpu, gpus): one * ratio * (serial + (1 - serial) / gpus)
            for gpu, ratio in relative.items()
            for gpus in range(1, self.most_gpus + 1)
        }
        return Times("amdahl", seconds, Quantiles(1.0, 1.0, 1.0))


@cache
def table_times() -> dict[str, Times]:
    """The times of the job table: `data/zoo_job_times.csv`, written by `scripts/scheduling_job_times.py`.

    They are foretrain's own predictions for the zoo's models. The spread of a job is that of its first row.
    """
    file = files("foretrain.scheduling") / "data" / "zoo_job_times.csv"
    with file.open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    times: dict[str, dict[tuple[str, int], float]] = {}
    spreads: dict[str, Quantiles] = {}
    for row in rows:
        p10, p50, p90 = (float(row[quantile]) for quantile in ("p10", "p50", "p90"))
        times.setdefault(row["job"], {})[row["device"], int(row["gpus"])] = p50
        spreads.setdefault(row["job"], Quantiles(p10 / p50, 1.0, p90 / p50))
    return {job: Times(job, seconds, spreads[job]) for job, seconds in times.items()}


# ---------------------------------------------------------------- where they may run


_STUDY = "polimi-gpu-cost"


@cache
def study_types() -> dict[str, NodeType]:
    """The study's machines by name: NC6 to NC24X (K80), NV6 to NV24X (M60), server-1 to server-3 (in-house).

    NC24X and NV24X are 8-GPU nodes of the study. Its in-house servers have a cost per hour too.
    """
    return {
        each.name: each
        for each in (
            NodeType(
                name=offer.instance.removeprefix("Standard_"),
                gpu=offer.device or offer.family,
                gpus=offer.count,
                usd_per_hour=offer.usd_per_hour,
                market=Market.OWNED if offer.provider == "in-house" else Market.ON_DEMAND,
            )
            for offer in shipped_offers()
            if offer.source == _STUDY
        )
    }


def cloud(nodes: int) -> Fleet:
    """Up to `nodes` nodes, each any of the eight cloud types."""
    return elastic(_cloud_types(), nodes)


def hybrid(nodes: int) -> Fleet:
    """The three in-house servers, once for every four nodes (at least once), beside `nodes` cloud nodes."""
    cloud_types = {each.name: each for each in _cloud_types()}
    servers = {name: each for name, each in study_types().items() if each.market is Market.OWNED}
    of_each = max(1, nodes // 4)
    groups = (NodeGroup(nodes, tuple(cloud_types)), *(NodeGroup(of_each, (name,)) for name in servers))
    return Fleet({**cloud_types, **servers}, groups)


def owned_fleet(nodes: int) -> Fleet:
    """An owned heterogeneous cluster: nodes of 8 GTX 1080 Ti, 4 K80 and 4 M60, in turn.

    The costs of K80 and M60 nodes are those of the cloud types of that size.
    """
    names = ("server-2", "NC24", "NV24")
    counts = [len(range(first, nodes, len(names))) for first in range(len(names))]
    groups = tuple(NodeGroup(count, (name,)) for name, count in zip(names, counts, strict=True) if count)
    return Fleet({name: study_types()[name] for name in names}, groups)


def _cloud_types() -> list[NodeType]:
    return [each for each in study_types().values() if each.market is Market.ON_DEMAND]


# ---------------------------------------------------------------- families


JOBS_PER_NODE = 10
SLACK = (1.0, 3.0)
WEIGHT_USD_PER_SECOND = (2 * 0.0015, 2 * 0.0075)


@dataclass(frozen=True)
class ProblemFamily:
    """A family of problems: when jobs come, how long they take, and the fleet."""

    name: str
    summary: str
    arrivals: Arrivals
    jobs: JobKind
    fleet: Callable[[int], Fleet] = cloud

    def problem(self, nodes: int, seed: int = 0, jobs_per_node: float = JOBS_PER_NODE) -> Problem:
        """One problem; the same for the same arguments."""
        if nodes < 1 or jobs_per_node < 0:
            raise InvalidRequest(
                f"{nodes} `nodes` with {jobs_per_node} `jobs_per_node`: give at least 1 node"
            )
        random = np.random.default_rng([seed, nodes, *self.name.encode()])
        fleet = self.fleet(nodes)
        times = [self.jobs.draw(random) for _ in range(round(nodes * jobs_per_node))]
        gpu_seconds = [_least_gpu_seconds(each, fleet) for each in times]
        submissions = np.cumsum(self.arrivals.gaps(gpu_seconds, fleet, random))
        return Problem(
            tuple(
                _job(number, each, float(submission), fleet, random)
                for number, (each, submission) in enumerate(zip(times, submissions, strict=True), start=1)
            ),
            fleet,
        )


def _job(number: int, times: Times, submit: float, fleet: Fleet, random: Generator) -> SubmittedJob:
    seconds = times.on(fleet)
    return SubmittedJob(
        name=f"{number:04d}-{times.name}",
        submit_seconds=submit,
        deadline_seconds=submit + float(random.uniform(*SLACK)) * min(seconds.values()),
        weight_usd_per_second=float(random.uniform(*WEIGHT_USD_PER_SECOND)),
        seconds=seconds,
        spread=times.spread,
    )


def _least_gpu_seconds(times: Times, fleet: Fleet) -> float:
    return min(each.gpus * seconds for each, seconds in times.on(fleet).items())


_ARRIVALS: dict[str, tuple[str, Arrivals]] = {
    "poisson-30": ("Poisson gaps of mean 30 s", PoissonGaps(30)),
    "poisson-45": ("Poisson gaps of mean 45 s", PoissonGaps(45)),
    "exponential": ("exponential gaps of mean 30,000 s / nodes", ExponentialGaps(30_000)),
    "low": ("utilisation 0.3", UtilisationGaps((0.3,))),
    "high": ("utilisation 1.1", UtilisationGaps((1.1,))),
    "mixed": ("utilisation alternating between 0.3 and 1.0", UtilisationGaps((0.3, 1.0))),
}
_SHORT = (1.0, 1.0)
_LONG = (10.0, 200.0)
_SHORT_SECONDS = (1e3, 6e3)
_LONG_SECONDS = (5e4, 5e5)


def _families() -> Iterator[ProblemFamily]:
    for name, (when, arrivals) in _ARRIVALS.items():
        is_short = isinstance(arrivals, PoissonGaps)
        table = TableJobs(_SHORT if is_short else _LONG)
        amdahl = AmdahlJobs(_SHORT_SECONDS if is_short else _LONG_SECONDS)
        yield ProblemFamily(name, f"Jobs of Ardagna's table (2019), {when}.", arrivals, table)
        yield ProblemFamily(f"{name}-scaling", f"Jobs that scale well, {when}.", arrivals, amdahl)
    when, arrivals = _ARRIVALS["mixed"]
    table = TableJobs(_LONG)
    yield ProblemFamily("hybrid", f"In-house servers and cloud nodes, {when}.", arrivals, table, hybrid)
    yield ProblemFamily("owned", f"An owned heterogeneous cluster, {when}.", arrivals, table, owned_fleet)


@cache
def families() -> Registry[ProblemFamily]:
    """All families by name."""
    known = tuple(_families())
    hint = f"Known: {', '.join(each.name for each in known)}"
    return Registry("family of problems", known, name=lambda each: each.name, hint=hint)


# ---------------------------------------------------------------- replay of the public philly trace


COLUMNS = ("timestamp", "duration", "num_gpus")
REFERENCE_GPU = "gtx1080ti"
_CLASSES = ((HOUR, "JJ4"), (10 * HOUR, "JJ1"), (100 * HOUR, "JJ2"), (math.inf, "JJ5"))
_NODES = 311
"""Nodes of eight GPUs for the 2,490 GPUs of the trace's cluster (Jeon et al., USENIX ATC 2019)."""


class TraceRow(NamedTuple):
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
            for configuration, ratio in _ratios(_kind(row), row.gpus, tuple(fleet.types.values())).items()
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


@lru_cache(maxsize=4096)
def _ratios(kind: str, gpus: int, types: tuple[NodeType, ...]) -> dict[Configuration, float]:
    """Times relative to the trace's duration. Equal jobs share their configurations, which saves memory."""
    table = table_times()[kind].seconds
    ratios: dict[Configuration, float] = {}
    for node in types:
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
