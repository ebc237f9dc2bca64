"""What an Inspector predicts: level, burst duration and idle duration of four resources of a worker.

The level of a resource that alternates is that of its bursts, otherwise its mean. Durations exist only where
a resource alternates: one that is always busy is busy for as long as one looks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from foretrain.prediction.resources.bursts import Bursts, Pattern, bursts_of, within
from foretrain.prediction.resources.worker_cycle import WorkerCycle
from foretrain.store.runs import NODE, Floats, Resource, Run

RESOURCES = (Resource.CPU, Resource.MEMORY, Resource.TRANSMIT, Resource.RECEIVE)
METRICS = ("burst_amount", "burst_duration", "idle_duration")
TARGETS = tuple(f"{resource.value} {metric}" for resource in RESOURCES for metric in METRICS)
"""The 12 targets, in the order of an Inspector's outputs."""
_LEAST_LEVEL = {Resource.CPU: 1e-3, Resource.MEMORY: 1e6, Resource.TRANSMIT: 1e3, Resource.RECEIVE: 1e3}
"""Levels below are as good as none; logarithms need a bound."""


def steady_window(run: Run) -> tuple[float, float] | None:
    """From the start of the first steady step to the end of the last, over all workers."""
    if run.summary is None or not run.steps:
        return None
    dropped = run.summary.warm_up_steps
    starts = [float(each.ends[dropped] - each.seconds[dropped]) for each in run.steps]
    return min(starts), max(float(each.ends[-1]) for each in run.steps)


def measured_targets(run: Run) -> Floats:
    """The 12 targets of a run, averaged over its workers; NaN where a figure does not exist."""
    window = steady_window(run)
    rows: list[list[float]] = []
    for resource in RESOURCES:
        series = [
            each
            for each in run.series
            if each.resource is resource and each.worker not in (NODE, run.environment.nodes)
        ]
        of_workers = [bursts for each in series if (bursts := bursts_of(within(each, window))) is not None]
        rows.append(_averaged(resource, of_workers))
    return np.array(rows).ravel()


def sample_interval_seconds(runs: Iterable[Run]) -> float:
    """The interval in which the resources of runs were sampled."""
    gaps = [
        float(np.median(np.diff(each.seconds)))
        for run in runs
        for each in run.series
        if each.resource is Resource.CPU and len(each.seconds) > 1
    ]
    return round(float(np.median(gaps)), 4)


def _averaged(resource: Resource, of_workers: Sequence[Bursts]) -> list[float]:
    alternating = [each for each in of_workers if each.pattern is Pattern.ALTERNATING]
    if 2 * len(alternating) < len(of_workers):
        alternating = []
    level = float(np.mean([level_of(each) for each in alternating or of_workers])) if of_workers else 0.0
    if level < _LEAST_LEVEL[resource]:
        return [np.nan] * len(METRICS)
    if not alternating:
        return [level, np.nan, np.nan]
    return [
        level,
        float(np.mean([each.burst_duration for each in alternating])),
        float(np.mean([each.idle_duration for each in alternating])),
    ]


def level_of(bursts: Bursts) -> float:
    """The level of a resource, whether or not it has bursts."""
    return bursts.idle_amount if bursts.pattern is Pattern.IDLE else bursts.burst_amount


def timeline_figures(cycle: WorkerCycle, interval_seconds: float) -> tuple[Floats, Floats]:
    """The 12 targets by the timeline, all above 0, and which resources alternate.

    A resource without gaps has bursts as long as the cycle and gaps as long as a sample.
    """
    rows, alternates = [], []
    for resource in RESOURCES:
        bursts = bursts_of(cycle.signals[resource].sampled(resource, interval_seconds))
        assert bursts is not None, "a cycle has samples"
        alternates.append(float(bursts.pattern is Pattern.ALTERNATING))
        level = max(level_of(bursts), _LEAST_LEVEL[resource])
        if bursts.pattern is Pattern.ALTERNATING:
            rows += [level, bursts.burst_duration, bursts.idle_duration]
        else:
            rows += [level, cycle.period_seconds, interval_seconds]
    return np.array(rows), np.array(alternates)
