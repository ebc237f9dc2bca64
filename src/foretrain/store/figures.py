"""Figures of runs to look at: the use of each resource, and several runs side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from foretrain.store.runs import UNITS, Resource, Run


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
