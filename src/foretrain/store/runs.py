"""A run of a training command: what ran, where, how long its steps took, which resources it used.

A run is complete when it is built: measuring, campaigns and imports make runs, the store keeps them, and
validation, calibration and learning read them; a `RunQuery` says which of them. Times are seconds since the
start of the run.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from foretrain.errors import InvalidRequest, UnknownName
from foretrain.units import UnitError, parse_duration

Floats = npt.NDArray[np.float64]
Plain = Mapping[str, Any]
"""Plain data as JSON has it: names, numbers, lists and mappings of them."""

NODE = -1
"""The `worker` of a series that belongs to a whole node and not to one worker."""
ALL = "all"
_CONDITIONS = ("model", "device", "campaign", "status", "since", "limit")


class Status(StrEnum):
    """How a run ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    OUT_OF_MEMORY = "out of memory"
    TIMED_OUT = "timed out"
    INTERRUPTED = "interrupted"


class Resource(StrEnum):
    """What is sampled. The unit is part of the resource: see `UNITS`."""

    CPU = "cpu"
    MEMORY = "memory"
    DISK_READ = "disk_read"
    DISK_WRITE = "disk_write"
    TRANSMIT = "network_transmit"
    RECEIVE = "network_receive"
    GPU = "gpu"
    GPU_MEMORY_BUSY = "gpu_memory_busy"
    GPU_MEMORY = "gpu_memory"
    POWER = "power"
    CLOCK = "clock"


OTHER_PROCESSES = "other processes"
"""Label of the CPU series of a node: cores that processes other than the watched ones kept busy."""

UNITS: Mapping[Resource, str] = {
    Resource.CPU: "cores",
    Resource.MEMORY: "bytes",
    Resource.DISK_READ: "bytes/s",
    Resource.DISK_WRITE: "bytes/s",
    Resource.TRANSMIT: "bytes/s",
    Resource.RECEIVE: "bytes/s",
    Resource.GPU: "share",
    Resource.GPU_MEMORY_BUSY: "share",
    Resource.GPU_MEMORY: "bytes",
    Resource.POWER: "W",
    Resource.CLOCK: "Hz",
}


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Hardware and software of a run. `device` is foretrain's id (`here` for this machine's CPU)."""

    device: str
    device_name: str
    devices_per_node: int = 1
    nodes: int = 1
    cpu: str = ""
    cores: int = 0
    memory_bytes: int = 0
    driver: str = ""
    topology: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class ResourceSeries:
    """Samples of one resource of one worker (`NODE` for the whole node).

    A rate (bytes/s) or a share at `seconds[i]` is the mean since the sample before. `label` distinguishes
    several of the same resource: a network interface, a GPU index.
    """

    resource: Resource
    worker: int
    seconds: Floats
    values: Floats
    node: int = 0
    label: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class WorkerSteps:
    """The steps of one worker: when each ended, how long it took, how long it waited for its input.

    `input_seconds` is empty where the source of the steps does not know it.
    """

    worker: int
    ends: Floats
    seconds: Floats
    input_seconds: Floats = field(default_factory=lambda: np.empty(0))
    node: int = 0


@dataclass(frozen=True, kw_only=True)
class StepSummary:
    """Steady steps over all workers, warm-up dropped: what a prediction is compared with.

    `variation` is the coefficient of variation; `input_share` the share of the time spent waiting for input,
    None where unknown; `source` says where the step times come from.
    """

    seconds: float
    p10_seconds: float
    p90_seconds: float
    steps: int
    warm_up_steps: int
    variation: float
    input_share: float | None = None
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class PredictionMade:
    """What foretrain predicted before the run: the step's interval, and the whole answer as plain data."""

    made_at: datetime
    version: str
    knowledge: str
    p10_seconds: float
    p50_seconds: float
    p90_seconds: float
    memory_bytes: float | None = None
    answer: Plain = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """One run of a training command.

    `setting` holds the keywords of `foretrain.predict` that describe the run (`model`, `on`, `batch`,
    `strategy` ...), as far as they are known, so that it can be predicted again. `provenance` says who made
    the run: `measure`, `campaign NAME`, `import FILE`. `trial` identifies it within a campaign and is unique
    in a store: a campaign never stores a trial twice.
    """

    id: str
    started_at: datetime
    seconds: float
    status: Status
    exit_code: int | None
    command: tuple[str, ...]
    setting: Plain
    environment: Environment
    provenance: str
    summary: StepSummary | None = None
    prediction: PredictionMade | None = None
    steps: tuple[WorkerSteps, ...] = ()
    series: tuple[ResourceSeries, ...] = ()
    message: str = ""
    campaign: str | None = None
    trial: str | None = None


def new_run_id() -> str:
    """A new id: 16 hexadecimal digits, unique without coordination."""
    return uuid.uuid4().hex[:16]


@dataclass(frozen=True, kw_only=True)
class RunQuery:
    """Conditions that a run must all meet; None and an empty tuple are no condition.

    `model` is the model of its setting, `device` that of its environment. `ids` are whole ids. `limit` keeps
    the newest runs.
    """

    model: str | None = None
    device: str | None = None
    campaign: str | None = None
    status: Status | None = None
    since: datetime | None = None
    ids: tuple[str, ...] = ()
    limit: int | None = None


def parse_query(text: str) -> RunQuery:
    """The query of `all`, or of conditions such as `model=resnet18,device=here,since=7d`."""
    if text.strip() in ("", ALL):
        return RunQuery()
    conditions: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if name not in _CONDITIONS:
            raise UnknownName("condition on runs", name, _CONDITIONS, f"Conditions: {', '.join(_CONDITIONS)}")
        if not equals or not value:
            raise InvalidRequest(f"{part.strip()!r} is no condition on runs; write it as {name}=VALUE")
        conditions[name] = value
    status, since, limit = (conditions.pop(name, None) for name in ("status", "since", "limit"))
    return RunQuery(
        **conditions,  # type: ignore[arg-type]
        status=None if status is None else _status(status),
        since=None if since is None else parse_since(since),
        limit=None if limit is None else _limit(limit),
    )


def _status(text: str) -> Status:
    known = {status.value.replace(" ", "-"): status for status in Status}
    if text not in known:
        raise UnknownName("status of a run", text, known, f"Statuses: {', '.join(known)}")
    return known[text]


def _limit(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise InvalidRequest(f"limit is {text!r}; it must be a whole number of at least 1")
    return int(text)


def parse_since(text: str) -> datetime:
    """A date such as 2026-11-16, or a duration before now such as 7d."""
    try:
        start = datetime.fromisoformat(text)
    except ValueError:
        try:
            return datetime.now(UTC) - timedelta(seconds=parse_duration(text))
        except (UnitError, OverflowError) as error:
            raise InvalidRequest(
                f"since is {text!r}; it must be a date such as 2026-11-16, or a duration such as 7d"
            ) from error
    return start.astimezone(UTC) if start.utcoffset() is not None else start.replace(tzinfo=UTC)


# ---------------------------------------------------------------- figures to look at


@dataclass(frozen=True, kw_only=True)
class SampleRange:
    """Smallest, median and largest sample of one series."""

    resource: Resource
    unit: str
    worker: int
    node: int
    label: str
    samples: int
    minimum: float
    median: float
    maximum: float


def resource_use(run: Run) -> tuple[SampleRange, ...]:
    """The use of each resource that has samples, in the order of the series."""
    return tuple(
        SampleRange(
            resource=series.resource,
            unit=UNITS[series.resource],
            worker=series.worker,
            node=series.node,
            label=series.label,
            samples=len(values),
            minimum=float(values.min()),
            median=float(np.median(values)),
            maximum=float(values.max()),
        )
        for series in run.series
        if len(values := series.values[np.isfinite(series.values)])
    )


@dataclass(frozen=True, kw_only=True)
class RunFigure:
    """One quantity of several runs; `ratios` are to the first run, None where either is unknown or 0."""

    name: str
    unit: str
    values: tuple[float | None, ...]
    ratios: tuple[float | None, ...]


def side_by_side(runs: Sequence[Run]) -> tuple[RunFigure, ...]:
    """The quantities that at least one of the runs has."""
    quantities: dict[tuple[str, str], Callable[[Run], float | None]] = {
        ("step", "s"): _of_summary("seconds"),
        ("step p90", "s"): _of_summary("p90_seconds"),
        ("variation", "share"): _of_summary("variation"),
        ("input stalls", "share"): _of_summary("input_share"),
        ("throughput", "samples/s"): _samples_per_second,
        ("predicted step", "s"): _predicted_seconds,
        ("whole run", "s"): lambda run: run.seconds,
        **{(f"{_shown(resource)} (median)", UNITS[resource]): _median_of(resource) for resource in Resource},
    }
    figures = []
    for (name, unit), quantity in quantities.items():
        values = tuple(_known(quantity(run)) for run in runs)
        if any(value is not None for value in values):
            figures.append(
                RunFigure(
                    name=name, unit=unit, values=values, ratios=tuple(_ratio(v, values[0]) for v in values)
                )
            )
    return tuple(figures)


def _of_summary(name: str) -> Callable[[Run], float | None]:
    return lambda run: None if run.summary is None else getattr(run.summary, name)


def _predicted_seconds(run: Run) -> float | None:
    return None if run.prediction is None else run.prediction.p50_seconds


def _shown(resource: Resource) -> str:
    return resource.value.replace("_", " ")


def _samples_per_second(run: Run) -> float | None:
    """By the global batch, where the setting states it."""
    batch = run.setting.get("global_batch")
    if batch is None and isinstance(run.setting.get("batch"), int):
        batch = run.setting["batch"] * run.environment.devices_per_node * run.environment.nodes
    if run.summary is None or not isinstance(batch, int) or not run.summary.seconds:
        return None
    return batch / run.summary.seconds


def _median_of(resource: Resource) -> Callable[[Run], float | None]:
    """The sum over workers (or nodes) of the median of each."""

    def total(run: Run) -> float | None:
        medians = [use.median for use in resource_use(run) if use.resource is resource]
        return sum(medians) if medians else None

    return total


def _known(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def _ratio(value: float | None, first: float | None) -> float | None:
    return None if value is None or not first else value / first
