"""Runs as samples of an Inspector: the step that was predicted, its setting, and what was measured.

Samples are completed runs of CPU workers that foretrain can describe; of all others the reason is kept. The
timeline that an Inspector starts from is that of the step by constants of the machine
(`prediction.step.cpu_workers`), which are fitted to the same runs that the Inspector is trained on.

What was measured, and what an Inspector predicts, are level, burst duration and idle duration of four
resources of a worker. The level of a resource that alternates is that of its bursts, otherwise its mean.
Durations exist only where a resource alternates: one that is always busy is busy for as long as one looks.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from foretrain.answers import Infeasible
from foretrain.errors import ForetrainError, InvalidRequest
from foretrain.facts.hardware import cluster
from foretrain.learning.user_calibration.samples import UnusedRun
from foretrain.prediction.corrections.workers import (
    SettingDeviation,
    step_of_workers,
    with_worker_time,
    worker_calibration,
)
from foretrain.prediction.options import Parallelism
from foretrain.prediction.predict import pace_of
from foretrain.prediction.resources.bursts import Bursts, Pattern, bursts_of, within
from foretrain.prediction.resources.worker_cycle import WorkerCycle, worker_cycle
from foretrain.prediction.scenario import Evaluation, Scenario, evaluation_of
from foretrain.prediction.step.cpu_workers import (
    DDP,
    FSDP,
    SERVER,
    SINGLE,
    WorkerConstants,
    WorkerStep,
    worker_time,
)
from foretrain.store.runs import NODE, Floats, Resource, Run, Status
from foretrain.workloads.graph import Graph
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.workload import workload_of

RESOURCES = (Resource.CPU, Resource.MEMORY, Resource.TRANSMIT, Resource.RECEIVE)
METRICS = ("burst_amount", "burst_duration", "idle_duration")
TARGETS = tuple(f"{resource.value} {metric}" for resource in RESOURCES for metric in METRICS)
"""The 12 targets, in the order of an Inspector's outputs."""
_LEAST_LEVEL = {Resource.CPU: 1e-3, Resource.MEMORY: 1e6, Resource.TRANSMIT: 1e3, Resource.RECEIVE: 1e3}
"""Levels below are as good as none; logarithms need a bound."""
_WORKLOAD = ("batch", "seq_len", "image_size", "precision", "optimizer", "attention", "channels_last")
_PARALLELISM = ("strategy", "links", "network")
_UNLIMITED_BYTES_PER_SECOND = 10e9
"""Stands for a network that nothing limits."""
SETTING = ("workers", "servers", "network", "workers per core", SINGLE, DDP, FSDP, SERVER, "async")
"""The features of a setting, in this order; the first four as logarithms, the others as 0 or 1."""


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
        rows.append(_average_workers(resource, of_workers))
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


def _average_workers(resource: Resource, of_workers: Sequence[Bursts]) -> list[float]:
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


@dataclass(frozen=True, eq=False)
class WorkerScene:
    """A step of CPU workers as an Inspector sees it: evaluated by timed operators, and its setting."""

    model: str
    pace: Evaluation
    step: WorkerStep
    servers: int

    @property
    def graph(self) -> Graph:
        """The graph of one worker's step."""
        return self.pace.graph

    @property
    def strategy(self) -> str:
        """The strategy; servers that update at each gradient are one of their own."""
        return f"{self.step.strategy}, async" if self.step.is_async else self.step.strategy

    @property
    def features(self) -> Floats:
        """The features of the setting (`SETTING`)."""
        rate = self.step.network_bytes_per_second or _UNLIMITED_BYTES_PER_SECOND
        amounts = (
            self.step.workers,
            1 + self.servers,
            rate / 1e8,
            self.step.workers_on_machine / self.step.cores,
        )
        kinds = [float(self.step.strategy == name) for name in SETTING[4:8]]
        return np.array([*map(math.log, amounts), *kinds, float(self.step.is_async)])

    def cycle(self, constants: WorkerConstants) -> WorkerCycle:
        """The cycle of a worker by constants of its machine."""
        none = SettingDeviation(0.0, 0.0, False, "constants of the Inspector")
        timed = with_worker_time(self.pace.step, worker_time(self.step, constants), none)
        evaluation = replace(
            evaluation_of(self.pace.context, self.pace.configuration, self.pace.executed, timed),
            known_memory=self.pace.memory,
        )
        own = min(1.0, self.step.cores / self.step.workers_on_machine)
        return worker_cycle(evaluation, own)

    def figures(self, constants: WorkerConstants, interval_seconds: float) -> tuple[Floats, Floats]:
        """The 12 targets by the timeline, and which resources alternate."""
        return _figures(self, constants, interval_seconds)


@lru_cache(maxsize=8192)
def _figures(
    scene: WorkerScene, constants: WorkerConstants, interval_seconds: float
) -> tuple[Floats, Floats]:
    return timeline_figures(scene.cycle(constants), interval_seconds)


@dataclass(frozen=True, eq=False)
class ResourceSample:
    """A run: its scene, its measured step, and the 12 measured targets."""

    id: str
    scene: WorkerScene
    measured_seconds: float
    targets: Floats

    @property
    def model(self) -> str:
        """The model that was trained."""
        return self.scene.model


def resource_samples(
    runs: Iterable[Run], progress: Callable[[str], None] = lambda _: None
) -> tuple[list[ResourceSample], list[UnusedRun]]:
    """The samples among runs, and the runs that are none."""
    samples, unused = [], []
    for run in runs:
        progress(str(run.setting.get("model", run.id)))
        try:
            samples.append(sample_of(run))
        except ForetrainError as error:
            unused.append(UnusedRun(run.id, str(error)))
    return samples, unused


def sample_of(run: Run) -> ResourceSample:
    """A run as a sample; one that cannot be used raises an error that says why."""
    if run.status is not Status.COMPLETED or run.summary is None:
        raise InvalidRequest(f"the run is {run.status.value} and has no steady steps")
    if not run.series:
        raise InvalidRequest("its resources were not sampled")
    setting = {name: value for name, value in run.setting.items() if value is not None}
    missing = [name for name in ("model", "on") if name not in setting]
    if missing:
        raise InvalidRequest(f"its setting has no {' and no '.join(missing)}")
    sizes = {name: setting[name] for name in _WORKLOAD if name in setting}
    scenario = Scenario(
        workload=workload_of(WorkloadRequest(str(setting["model"]), **sizes)),
        cluster=cluster(str(setting["on"])),
        parallelism=Parallelism(**{name: setting[name] for name in _PARALLELISM if name in setting}),
        advice=False,
    )
    pace = pace_of(scenario)
    if isinstance(pace, Infeasible):
        raise InvalidRequest(str(pace))
    return ResourceSample(
        run.id, scene_of(pace, run.environment.cores), run.summary.seconds, measured_targets(run)
    )


def scene_of(pace: Evaluation, cores: int = 0) -> WorkerScene:
    """The scene of an evaluated step; steps that are not of CPU workers raise an error."""
    device, layout = pace.context.hardware.device, pace.configuration.layout
    if not device.is_cpu:
        raise InvalidRequest(f"an Inspector knows CPU workers only, and {device.id} is a {device.kind}")
    if pace.configuration.micro_batches > 1:
        raise InvalidRequest("an Inspector knows steps of one micro-batch only")
    step = step_of_workers(
        pace.graph, layout, pace.context.hardware, pace.context.environment, cores or _cores(pace)
    )
    if step is None:
        raise InvalidRequest(f"strategy {layout.name} is not one that an Inspector knows")
    servers = 0 if layout.servers is None else layout.servers.servers
    return WorkerScene(pace.context.workload.source.name, pace, step, servers)


def _cores(pace: Evaluation) -> int:
    """Cores of a machine: by its calibration, of this machine itself, or by its sheet."""
    hardware = pace.context.hardware
    known = worker_calibration(hardware.device.id)
    if known is not None:
        return known.cores
    if hardware.device.is_this_machine:
        return os.cpu_count() or 1
    sheet = hardware.device.sheet
    return int(sheet.number("cores")) if sheet.has("cores") else hardware.devices_per_node
