"""What a run shows: steps of each worker, resources, bursts, and the prediction beside what was measured.

Step times of a run as one summary: warm-up dropped, median, percentiles, variation, input share. Bursts and
idle gaps of a node are those of utilisation of the GPU (without one, of the CPU), of its memory, network
transmit and network receive, each from the series of all its workers (`prediction.resources.bursts`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from foretrain.encoding import encode
from foretrain.prediction.resources.bursts import Bursts, bursts_of, within
from foretrain.store.runs import (
    NODE,
    OTHER_PROCESSES,
    UNITS,
    Floats,
    Resource,
    ResourceSeries,
    Run,
    StepSummary,
    WorkerSteps,
)

_WARM_UP_SHARE = 0.1
"""Steps left out at the beginning: a tenth, within the bounds below."""
_LEAST_WARM_UP, _MOST_WARM_UP = 1, 10
_SLOW = 1.5
"""A step at the start counts as warm-up while it takes this many times the median of the later half."""
_DISTURBING_CORES, _BUSY_SHARE = 0.25, 0.9
"""Cores of other processes, and share of all cores in use, from which steps are longer than alone."""


def summarise(steps: Sequence[WorkerSteps], source: str) -> StepSummary | None:
    """The steady steps of all workers together; None without a step.

    `steps` of the summary counts the steps of the worker with most of them: workers take a step at a time
    together. The coefficient of variation is the standard deviation over the mean.
    """
    timed = [worker for worker in steps if len(worker.seconds)]
    if not timed:
        return None
    dropped = max(warm_up_steps(worker.seconds) for worker in timed)
    kept = [min(dropped, len(worker.seconds) - 1) for worker in timed]
    steady = [worker.seconds[start:] for worker, start in zip(timed, kept, strict=True)]
    seconds = np.concatenate(steady)
    p10, p50, p90 = np.quantile(seconds, (0.1, 0.5, 0.9))
    return StepSummary(
        seconds=float(p50),
        p10_seconds=float(p10),
        p90_seconds=float(p90),
        steps=max(map(len, steady)),
        warm_up_steps=dropped,
        variation=float(seconds.std() / seconds.mean()) if seconds.mean() > 0 else 0.0,
        input_share=_input_share(timed, kept),
        source=source,
    )


def warm_up_steps(seconds: Floats) -> int:
    """How many first steps to drop: a tenth (1 to 10), and slow ones after them, up to half of all steps."""
    count = len(seconds)
    if count < 3:
        return 0
    dropped = min(max(math.ceil(_WARM_UP_SHARE * count), _LEAST_WARM_UP), _MOST_WARM_UP)
    steady = float(np.median(seconds[count // 2 :]))
    while dropped < count // 2 and seconds[dropped] > _SLOW * steady:
        dropped += 1
    return dropped


def _input_share(timed: Sequence[WorkerSteps], starts: Sequence[int]) -> float | None:
    """The time spent waiting for input over all time, of the workers that report it."""
    known = [
        (float(worker.input_seconds[start:].sum()), float(worker.seconds[start:].sum()))
        for worker, start in zip(timed, starts, strict=True)
        if len(worker.input_seconds) == len(worker.seconds)
    ]
    total = sum(seconds for _, seconds in known)
    return min(1.0, sum(waiting for waiting, _ in known) / total) if total > 0 else None


Window = tuple[float, float]


@dataclass(frozen=True)
class ResourceUse:
    """A resource of a worker or node while steps were taken, in the unit of the resource."""

    resource: Resource
    worker: int
    node: int
    label: str
    unit: str
    mean: float
    p95: float
    highest: float


@dataclass(frozen=True)
class WorkerReport:
    """The steady steps of one worker."""

    worker: int
    node: int
    summary: StepSummary


@dataclass(frozen=True, eq=False)
class Report:
    """A run as people read it. `window` is the time in which steady steps were taken."""

    run: Run
    window: Window | None
    workers: tuple[WorkerReport, ...]
    resources: tuple[ResourceUse, ...]
    bursts: tuple[Bursts, ...]

    @property
    def measured_over_predicted(self) -> float | None:
        """The measured step time over the predicted one."""
        if self.run.summary is None or self.run.prediction is None:
            return None
        return self.run.summary.seconds / self.run.prediction.p50_seconds

    @property
    def other_cores(self) -> float:
        """Cores of its busiest node that other processes used; 0 where that was not sampled."""
        return max((use.mean for use in self.resources if use.label == OTHER_PROCESSES), default=0.0)

    @property
    def is_disturbed(self) -> bool:
        """Whether other processes left too few cores idle for steps to take as long as on a quiet machine."""
        own: dict[int, float] = {}
        for use in self.resources:
            if use.resource is Resource.CPU and use.label != OTHER_PROCESSES:
                own[use.node] = own.get(use.node, 0.0) + use.mean
        cores = self.run.environment.cores
        busy = self.other_cores + max(own.values(), default=0.0)
        return self.other_cores >= _DISTURBING_CORES and busy >= _BUSY_SHARE * cores

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the run without its samples, which stay in the store."""
        run = self.run
        made = run.prediction
        prediction = made and {
            "p10_seconds": made.p10_seconds,
            "p50_seconds": made.p50_seconds,
            "p90_seconds": made.p90_seconds,
            "knowledge": made.knowledge,
            "measured_over_predicted": self.measured_over_predicted,
        }
        answer: dict[str, Any] = encode(
            {
                "id": run.id,
                "started_at": run.started_at,
                "seconds": run.seconds,
                "status": run.status,
                "exit_code": run.exit_code,
                "message": run.message,
                "command": run.command,
                "setting": run.setting,
                "environment": run.environment,
                "step": run.summary,
                "prediction": prediction,
                "workers": self.workers,
                "window": self.window,
                "other_cores": self.other_cores,
                "resources": self.resources,
                "bursts": self.bursts,
            }
        )
        return answer


def report_of(run: Run) -> Report:
    """The report of a run: resources and bursts are those of the time in which steady steps were taken."""
    window = steady_window(run)
    return Report(
        run=run,
        window=window,
        workers=_workers(run),
        resources=_resources(run, window),
        bursts=tuple(
            bursts
            for node in sorted({each.node for each in run.series})
            for bursts in four_resources(run.series, node=node, window=window)
        ),
    )


def steady_window(run: Run) -> Window | None:
    """From the end of the warm-up to the last step; None without steps."""
    if run.summary is None:
        return None
    timed = [each for each in run.steps if len(each.ends)]
    dropped = run.summary.warm_up_steps
    start = min(float(each.ends[min(dropped, len(each.ends) - 1)]) for each in timed)
    end = max(float(each.ends[-1]) for each in timed)
    return (start, end) if end > start else None


def _workers(run: Run) -> tuple[WorkerReport, ...]:
    reports = []
    for each in run.steps:
        summary = summarise([each], run.summary.source if run.summary is not None else "")
        if summary is not None:
            reports.append(WorkerReport(each.worker, each.node, summary))
    return tuple(reports)


def _resources(run: Run, window: Window | None) -> tuple[ResourceUse, ...]:
    uses = []
    for each in run.series:
        values = within(each, window).values
        if len(values):
            mean, p95, highest = float(values.mean()), float(np.quantile(values, 0.95)), float(values.max())
            unit = UNITS[each.resource]
            uses.append(
                ResourceUse(each.resource, each.worker, each.node, each.label, unit, mean, p95, highest)
            )
    return tuple(uses)


# ---------------------------------------------------------------- bursts and idle gaps of a measured node


UTILISATION = (Resource.GPU, Resource.CPU)
MEMORY = (Resource.GPU_MEMORY_BUSY, Resource.MEMORY)
TRANSMIT = (Resource.TRANSMIT,)
RECEIVE = (Resource.RECEIVE,)


def four_resources(
    series: Sequence[ResourceSeries], *, node: int = 0, window: tuple[float, float] | None = None
) -> tuple[Bursts, ...]:
    """The bursts of utilisation, memory, transmit and receive of a node, as far as they were sampled.

    Workers and GPUs are added up or averaged; of several interfaces the one with most traffic counts.
    """
    here = [within(each, window) for each in series if each.node == node]
    described = []
    for choices in (UTILISATION, MEMORY, TRANSMIT, RECEIVE):
        chosen = _of_a_node(here, choices)
        bursts = None if chosen is None else bursts_of(chosen)
        if bursts is not None:
            described.append(bursts)
    return tuple(described)


def series_of(bursts: Bursts, series: Sequence[ResourceSeries]) -> ResourceSeries:
    """The samples that bursts were taken from, over the whole run."""
    of_resource = [each for each in series if each.node == bursts.node and each.resource is bursts.resource]
    if bursts.resource in (Resource.TRANSMIT, Resource.RECEIVE):
        return next(
            each for each in of_resource if (each.label, each.worker) == (bursts.label, bursts.worker)
        )
    chosen = _of_a_node(of_resource, (bursts.resource,))
    assert chosen is not None, "bursts are of a series that has samples"
    return chosen


def total(series: Sequence[ResourceSeries], *, mean: bool = False) -> ResourceSeries:
    """Series of one resource that share their instants, added up (or averaged) into one of the node."""
    seconds = np.unique(np.concatenate([each.seconds for each in series]))
    values = np.zeros(len(seconds))
    for each in series:
        values[np.searchsorted(seconds, each.seconds)] += each.values
    if mean:
        values /= len(series)
    return replace(series[0], worker=NODE, label="", seconds=seconds, values=values)


def _of_a_node(series: Iterable[ResourceSeries], choices: Sequence[Resource]) -> ResourceSeries | None:
    listed = list(series)
    for resource in choices:
        chosen = [
            each
            for each in listed
            if each.resource is resource and len(each.values) and each.label != OTHER_PROCESSES
        ]
        if not chosen:
            continue
        if resource in (Resource.TRANSMIT, Resource.RECEIVE):
            return max(chosen, key=lambda each: float(each.values.sum()))
        return total(chosen, mean=resource in (Resource.GPU, Resource.GPU_MEMORY_BUSY))
    return None
