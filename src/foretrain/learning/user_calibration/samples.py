"""Runs as samples of a fit: the measured step, and what its time depends on.

Only completed runs of CPU workers that foretrain can describe are samples; of all others the reason is kept.
A step that was measured in another unit is refused: it shows as a ratio of a power of ten to the prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from foretrain.errors import ForetrainError, InvalidRequest
from foretrain.facts.hardware import cluster
from foretrain.prediction.corrections.apply import resolve_cost_model
from foretrain.prediction.corrections.workers import setting_key, step_of_workers
from foretrain.prediction.operators.pricing import DEFAULT
from foretrain.prediction.options import InputOptions, Parallelism
from foretrain.prediction.scenario import step_context
from foretrain.prediction.step.cpu_workers import WorkerStep, prior, worker_time
from foretrain.prediction.strategies.strategy import layout_of
from foretrain.store.runs import PredictionMade, Run, Status
from foretrain.units import format_duration
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.workload import default_batch, graph_at, workload_of

_WORKLOAD = ("batch", "seq_len", "image_size", "precision", "optimizer", "attention", "channels_last")
_PARALLELISM = ("strategy", "links", "network")
_OTHER = ("model", "on", "jitter", "compile", "cost_model", "advice")
_LARGEST_RATIO = 100.0
"""Predictions of any device are within this factor; what is beyond is a typing error."""
_UNITS = ((1e3, "milliseconds"), (1e6, "microseconds"), (1e9, "nanoseconds"))
_WITHIN = 4.0
"""A unit is named if it brings the time within this factor of the prediction."""


@dataclass(frozen=True)
class RunSample:
    """A run: model and device, the measured step, what its time depends on, and its earlier prediction."""

    id: str
    model: str
    device: str
    key: str
    measured_seconds: float
    step: WorkerStep
    before: PredictionMade | None = None


@dataclass(frozen=True, slots=True)
class UnusedRun:
    """A run that is no sample, and why."""

    id: str
    reason: str


def samples_of(
    runs: Iterable[Run], progress: Callable[[str], None] = lambda _: None
) -> tuple[list[RunSample], list[UnusedRun]]:
    """The samples among runs, and the runs that are none."""
    samples, unused = [], []
    for run in runs:
        progress(f"{run.setting.get('model', run.id)}")
        try:
            samples.append(sample_of(run))
        except ForetrainError as error:
            unused.append(UnusedRun(run.id, str(error)))
    return samples, unused


def sample_of(run: Run) -> RunSample:
    """A run as a sample; one that cannot be used raises an error that says why."""
    setting = {name: value for name, value in run.setting.items() if value is not None}
    if run.status is not Status.COMPLETED or run.summary is None:
        raise InvalidRequest(f"the run is {run.status.value} and has no steady steps")
    missing = [name for name in ("model", "on") if name not in setting]
    if missing:
        raise InvalidRequest(f"its setting has no {' and no '.join(missing)}")
    unknown = setting.keys() - {*_WORKLOAD, *_PARALLELISM, *_OTHER}
    if unknown:
        raise InvalidRequest(f"its setting has {', '.join(sorted(unknown))}, which fits do not consider")
    step, model, device, batch = _describe_setting(setting, run.environment.cores)
    check_plausible(run.summary.seconds, worker_time(step, prior().constants).seconds, "the measured step")
    return RunSample(
        id=run.id,
        model=model,
        device=device,
        key=setting_key(model, batch, step),
        measured_seconds=run.summary.seconds,
        step=step,
        before=run.prediction,
    )


def _describe_setting(setting: dict[str, Any], cores: int) -> tuple[WorkerStep, str, str, int]:
    """What the time of a setting depends on, its model, its device and its batch."""
    machines = cluster(str(setting["on"]))
    if not machines.is_homogeneous:
        raise InvalidRequest("it ran on a heterogeneous cluster")
    hardware = machines.groups[0]
    if not hardware.device.is_cpu:
        raise InvalidRequest(
            f"it ran on {hardware.device.id}: steps of one GPU are learned from a timings CSV or a trace"
        )
    model = str(setting["model"])
    sizes = {name: setting[name] for name in _WORKLOAD if name in setting}
    workload = workload_of(WorkloadRequest(model, compile=bool(setting.get("compile")), **sizes))
    parallelism = Parallelism(**{name: setting[name] for name in _PARALLELISM if name in setting})
    context = step_context(
        workload, hardware, parallelism, resolve_cost_model(DEFAULT, workload), InputOptions()
    )
    layout = layout_of(parallelism.strategy, hardware.devices, hardware.devices_per_node)
    batch = default_batch(workload)
    graph = graph_at(workload, batch)
    known = hardware.device.sheet
    cores = cores or (int(known.number("cores")) if known.has("cores") else hardware.devices)
    step = step_of_workers(graph, layout, hardware, context.environment, cores)
    if step is None:
        raise InvalidRequest(f"strategy {parallelism.strategy} is not one that fits consider")
    return step, workload.source.name, hardware.device.id, graph.batch


def check_plausible(measured_seconds: float, predicted_seconds: float, column: str = "step_seconds") -> None:
    """Refuse a time that no machine of the kind takes, with what it looks like."""
    ratio = measured_seconds / predicted_seconds
    if 1 / _LARGEST_RATIO < ratio < _LARGEST_RATIO:
        return
    times = f"{ratio:,.0f} times" if ratio > 1 else f"1/{1 / ratio:,.0f} of"
    raise InvalidRequest(
        f"{column} is {measured_seconds:g}, {times} the {format_duration(predicted_seconds)} that are "
        f"predicted; {_looks_like(measured_seconds, ratio)}"
    )


def _looks_like(measured_seconds: float, ratio: float) -> str:
    for scale, unit in _UNITS:
        if 1 / _WITHIN <= ratio / scale <= _WITHIN:
            return f"it looks like {unit}: in seconds it is {measured_seconds / scale:g}"
    if ratio < 1:
        return "it looks like a time of one sample, or in minutes or hours: give seconds of a whole step"
    return "check the model, the device and the batch size, and give the time of one step in seconds"
