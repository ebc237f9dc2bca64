"""Steps of CPU workers predicted by the constants that were fitted to the machine's own runs.

`foretrain calibrate --runs` stores the constants, how far runs deviate from them, and the deviation of each
model and each setting that was run. A model that was run is corrected by its mean deviation, shrunk by the
number of its runs; a setting that was run by its own.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from foretrain.errors import InvalidData
from foretrain.estimates import Z90, Estimate, Part
from foretrain.facts.hardware import Hardware
from foretrain.facts.user_data import read_kept
from foretrain.persisted import restore
from foretrain.prediction.corrections.files import WORKERS, file_of, name_of, read_calibration
from foretrain.prediction.cost_models import OperatorCostModel, TimingEvidence
from foretrain.prediction.operators.pricing import Knowledge
from foretrain.prediction.step.cpu_workers import (
    WorkerConstants,
    WorkerStep,
    WorkerTime,
    worker_step,
    worker_time,
)
from foretrain.prediction.step.parallel import EXPOSED, ParallelStep, StepEnvironment
from foretrain.prediction.strategies.strategy import Layout
from foretrain.workloads.graph import Graph, Phase

SOURCE = "your own runs"
_LEAST_SPREAD = 0.02
"""Runs of one setting differ at least by this much."""


@dataclass(frozen=True)
class ModelDeviation:
    """The mean of log(measured / predicted) of a model's runs, and their number."""

    mean: float
    runs: int


@dataclass(frozen=True)
class WorkerCalibration:
    """Constants of a machine, and how runs deviate from what they predict.

    `model_spread` and `run_spread` are standard deviations of log(measured / predicted): of models, and of
    the runs of one model. `settings` has the deviation of each setting that was run, by `setting_key`. Only
    `strategies` that were measured are predicted by it.
    """

    constants: WorkerConstants
    cores: int
    model_spread: float
    run_spread: float
    models: Mapping[str, ModelDeviation]
    settings: Mapping[str, float]
    strategies: frozenset[str]

    @property
    def spread(self) -> float:
        """That of a model that was not run."""
        return math.hypot(self.model_spread, self.run_spread)


@dataclass(frozen=True, slots=True)
class SettingDeviation:
    """The expected logarithm of measured over predicted, its standard deviation, and what it rests on."""

    mean: float
    spread: float
    is_measured: bool
    basis: str


def setting_key(model: str, batch: int, step: WorkerStep) -> str:
    """The key of a setting: the model, its sizes by their predicted work, and the workers."""
    content = [
        model, batch, step.strategy, step.is_async, step.workers, step.network_bytes_per_second,
        *(f"{seconds:.4g}" for _, seconds in sorted(step.seconds.items())),
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:20]


def deviation(known: WorkerCalibration, model: str, key: str) -> SettingDeviation:
    """The correction of a setting: by its own runs, by those of its model, or none."""
    if key in known.settings:
        basis = f"{SOURCE}: this setting was run"
        return SettingDeviation(known.settings[key], max(_LEAST_SPREAD, known.run_spread / 2), True, basis)
    own = known.models.get(model)
    if own is None:
        return SettingDeviation(0.0, known.spread, False, f"{SOURCE}: other models on this machine")
    between, within = known.model_spread**2, known.run_spread**2
    shrunk = between / (between + within / own.runs) if between > 0 else 0.0
    left = math.sqrt(between * (1 - shrunk) + within)
    return SettingDeviation(own.mean * shrunk, left, True, f"{SOURCE}: {own.runs} of this model")


def worker_calibration(device_id: str) -> WorkerCalibration | None:
    """The stored calibration of a machine; None without one."""
    return read_kept(file_of(name_of(WORKERS, device_id)), _read)


def _read(file: Path) -> WorkerCalibration:
    try:
        return _from_plain(read_calibration(file).content)
    except ValueError as error:
        raise InvalidData(str(file), f"has incomplete content ({error}); calibrate again") from error


def _from_plain(raw: Mapping[str, Any]) -> WorkerCalibration:
    known = restore(WorkerCalibration, raw, "its content")
    for name, value in asdict(known.constants).items():
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} is {value}, but must be at least 0")
    return replace(known, cores=max(1, known.cores))


def check_content(content: Mapping[str, Any]) -> None:
    """Raise `ValueError`, `KeyError` or `TypeError` where the content of a file is not such a calibration."""
    _from_plain(content)


def step_of_workers(
    graph: Graph, layout: Layout, hardware: Hardware, at: StepEnvironment, cores: int
) -> WorkerStep | None:
    """What the time of a step of CPU workers depends on, priced by the operator calibration alone."""
    tier = at.network.inter
    rate = None if tier is None or tier.assumed else tier.nominal_bytes_per_second
    priced = OperatorCostModel().price(graph, at.device)
    on_machine = hardware.devices if at.device.is_this_machine else hardware.devices_per_node
    return worker_step(graph, priced, layout, on_machine, cores, rate)


def calibrate_step(
    step: ParallelStep, model: str, graph: Graph, hardware: Hardware, at: StepEnvironment
) -> ParallelStep:
    """The step of a model as the machine's own runs predict it; unchanged without such a calibration."""
    known = worker_calibration(at.device.id)
    if known is None:
        return step
    worker = step_of_workers(graph, step.layout, hardware, at, known.cores)
    if worker is None or worker.strategy not in known.strategies:
        return step
    off = deviation(known, model, setting_key(model, graph.batch, worker))
    return with_worker_time(step, worker_time(worker, known.constants), off)


def with_worker_time(step: ParallelStep, time: WorkerTime, off: SettingDeviation) -> ParallelStep:
    """The step with the time of a worker, corrected by how runs deviate from it."""
    factor = math.exp(off.mean)
    named = [
        *((f"computing: {group}", seconds) for group, seconds in time.computing.items()),
        ("overhead of the step", time.overhead),
        (EXPOSED, time.exchanging),
    ]
    below, above = 1 - math.exp(-Z90 * off.spread), math.exp(Z90 * off.spread) - 1
    parts = tuple(
        Part(name, seconds * factor, SOURCE, seconds * factor * below, seconds * factor * above)
        for name, seconds in named
        if seconds > 0
    )
    computing = sum(time.computing.values()) * factor
    before = sum(step.run.phases.values())
    phases: dict[Phase, float] = {
        phase: seconds * (computing + time.overhead * factor) / before if before else 0.0
        for phase, seconds in step.run.phases.items()
    }
    run = replace(
        step.run,
        seconds=time.seconds * factor,
        computing_seconds=computing,
        waiting_seconds=time.overhead * factor,
        exposed_seconds=time.exchanging * factor,
        phases=phases,
    )
    knowledge = Knowledge.MEASURED if off.is_measured else Knowledge.CALIBRATED
    return replace(
        step,
        estimate=Estimate("s", parts),
        run=run,
        priced=replace(step.priced, evidence=TimingEvidence(off.basis, knowledge)),
        includes_waits=True,
    )
