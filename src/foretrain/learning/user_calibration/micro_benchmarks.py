"""Micro-benchmarks as calibrations: operators of a GPU by kind, and gloo's all-reduce on this machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

import numpy as np

from foretrain.facts.devices import Device
from foretrain.learning.cpu import TimedWork, relative_fit
from foretrain.learning.user_calibration.storing import keep_profile, kept_workers
from foretrain.prediction.corrections.files import WORKERS, CalibrationFile, calibration_for
from foretrain.prediction.corrections.kinds import MICRO_BENCHMARKS, KindTimes, ProfiledModel
from foretrain.prediction.corrections.workers import WorkerCalibration
from foretrain.prediction.operators.pricing import DEFAULT, operator_models, price
from foretrain.prediction.step.cpu_workers import DDP, prior
from foretrain.workloads.graph import Phase
from foretrain.workloads.ops import Direction, Kind, Op

_PHASES = {Direction.FORWARD: Phase.FORWARD, Direction.UPDATE: Phase.OPTIMIZER}


def benchmark_profile(timed: Sequence[TimedWork], device: Device) -> ProfiledModel:
    """Measured and predicted seconds of the kinds of operators that were timed on a device.

    The ratio of a kind is the median over its shapes, weighted into the predicted time of all of them.
    """
    ops = [
        Op(item.work, index, item.work.kind.value, _phase(item), "", False)
        for index, item in enumerate(timed)
    ]
    predicted = price(ops, device, operator_models(device, DEFAULT)).seconds
    groups: dict[tuple[Phase, Kind], list[tuple[float, float]]] = {}
    for op, item, seconds in zip(ops, timed, predicted.tolist(), strict=True):
        if seconds > 0 and item.seconds > 0:
            groups.setdefault((op.phase, op.work.kind), []).append((item.seconds, seconds))
    kinds = []
    for (phase, kind), pairs in groups.items():
        total = sum(seconds for _, seconds in pairs)
        ratio = median(measured / seconds for measured, seconds in pairs)
        kinds.append(KindTimes(phase, kind, total * ratio, total))
    return ProfiledModel(MICRO_BENCHMARKS, 1, 0.0, 0.0, tuple(kinds))


def _phase(item: TimedWork) -> Phase:
    if item.work.kind is Kind.OPTIMIZER:
        return Phase.OPTIMIZER
    return _PHASES.get(item.work.direction, Phase.BACKWARD)


def keep_benchmarks(
    timed: Sequence[TimedWork], device: Device, versions: Mapping[str, str]
) -> CalibrationFile:
    """Store what micro-benchmarks say about a GPU."""
    return keep_profile(benchmark_profile(timed, device), device.id, versions)


def keep_all_reduce(
    timings: Sequence[tuple[int, float]], device_id: str, cores: int, versions: Mapping[str, str]
) -> CalibrationFile | None:
    """Store latency and time per byte of gloo's all-reduce; None where runs have calibrated the machine.

    Of each byte of a message two halves pass a core of the worker, sent and received.
    """
    stored = calibration_for(WORKERS, device_id)
    if stored is not None and "runs" in stored.fitted_on:
        return None
    sizes = np.array([size for size, _ in timings], float)
    seconds = np.array([taken for _, taken in timings])
    latency, per_byte = relative_fit(np.stack([np.ones_like(sizes), sizes], axis=1), seconds).tolist()
    known = prior()
    constants = replace(
        known.constants,
        ddp_message_seconds=max(latency, float(seconds.min()) / 2),
        ddp_byte_seconds=per_byte,
    )
    calibration = WorkerCalibration(
        constants, cores, known.model_spread, known.run_spread, {}, {}, frozenset({DDP})
    )
    off = [math.log(taken / (latency + per_byte * size)) for size, taken in timings]
    return kept_workers(
        calibration, device_id, versions, {"all-reduces": len(timings)}, len(timings), float(np.std(off))
    )
