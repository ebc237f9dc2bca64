"""Calibrations from micro-benchmarks: operators of a CPU and of a GPU, and gloo's all-reduce on this machine.

Times of operators on a CPU are fitted by non-negative least squares, family by family. Of a GPU, whose
operators have models already, the ratio of measured to predicted time is kept for each kind. An all-reduce
takes a latency and a time per byte.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from statistics import median

import numpy as np

from foretrain.errors import BackendFailed, InvalidRequest
from foretrain.estimates import Z90
from foretrain.facts.devices import Device
from foretrain.learning.user_calibration.catalogue import keep_constants, keep_profile
from foretrain.prediction.corrections.apply import MICRO_BENCHMARKS, KindTimes, ProfiledModel
from foretrain.prediction.corrections.files import WORKERS, CalibrationFile, calibration_for
from foretrain.prediction.corrections.workers import WorkerCalibration
from foretrain.prediction.operators.cpu import CpuCalibration, FamilyFit, family, fresh_bytes, terms
from foretrain.prediction.operators.pricing import DEFAULT, Floats, WorkTable, operator_models, price, table
from foretrain.prediction.step.cpu_workers import DDP, prior
from foretrain.ties import first_of_least
from foretrain.workloads.graph import Phase
from foretrain.workloads.ops import MATRIX_KINDS, Direction, Kind, Op, Work

_ROUNDS = 12
"""Reweightings that turn least squares into least absolute errors."""
_LEAST_RESIDUAL = 0.03
"""Bounds weights: otherwise one time that is met exactly would decide the fit."""
_SAME_ERROR = 1e-6
_FIRST = 1e-6
_CACHES = tuple(2.0**power for power in range(19, 29))
"""Sizes tried for the cache that a stream of operators finds its data in."""
_FEWEST_LEFT = 2
"""Without one of two or fewer there is nothing to fit."""
_BEYOND_CACHES = 128 * 2**20
"""Bytes that no cache holds, so that their rate is that of memory."""
_LEAST_SHARE = 0.1
"""Of a time at least this share is the operator's own, not that of mapping memory."""
_NORMAL_DEVIATIONS = 1.4826
"""Standard deviation of a normal distribution over its median deviation."""
_MOST_ERROR = 0.5
"""Mean error on operators left out above which a calibration is refused."""
_COPIES = "copy forward"
"""Compute nothing, so they show memory best."""
_STREAM = "elementwise forward"
_PHASES = {Direction.FORWARD: Phase.FORWARD, Direction.UPDATE: Phase.OPTIMIZER}


@dataclass(frozen=True)
class TimedWork:
    """A piece of work and the seconds it took."""

    work: Work
    seconds: float


def calibrate(
    timed: Sequence[TimedWork], device_id: str, threads: int, torch_version: str = ""
) -> CpuCalibration:
    """The calibration of a CPU from timed operators."""
    groups: dict[str, list[TimedWork]] = {}
    for item in timed:
        groups.setdefault(family(item.work), []).append(item)
    if _STREAM not in groups:
        raise InvalidRequest("no elementwise operator was timed, so the caches of this machine are unknown")
    cache_bytes, fresh = _memory(groups.get(_COPIES, groups[_STREAM]))
    sizes = [item.work.read_bytes + item.work.write_bytes for item in timed]
    rates = [(size / item.seconds, size) for size, item in zip(sizes, timed, strict=True)]
    return CpuCalibration(
        device_id=device_id,
        threads=threads,
        flop_per_second=max(
            item.work.flop / item.seconds for item in timed if item.work.kind in MATRIX_KINDS
        ),
        bytes_per_second=max(rates)[0],
        memory_bytes_per_second=max(
            (rate for rate, size in rates if size >= _BEYOND_CACHES), default=max(rates)[0]
        ),
        cache_bytes=cache_bytes,
        seconds_per_fresh_byte=fresh,
        families={name: _fit(group, cache_bytes, fresh) for name, group in sorted(groups.items())},
        software={"python": platform.python_version(), "numpy": np.__version__, "torch": torch_version},
        measured_on=date.today().isoformat(),
    )


def _columns(works: WorkTable, cache_bytes: float) -> tuple[list[str], Floats]:
    by_name = terms(works, cache_bytes)
    return list(by_name), np.stack(list(by_name.values()), axis=1)


def _parts(group: Sequence[TimedWork]) -> tuple[WorkTable, Floats]:
    return table([item.work for item in group]), np.array([item.seconds for item in group])


def _memory(group: Sequence[TimedWork]) -> tuple[float, float]:
    """The size of cache, and the seconds of a byte mapped anew, that fit streaming operators best."""
    works, times = _parts(group)
    fresh = fresh_bytes(works)[:, None]

    def fitted(size: float) -> tuple[float, float]:
        columns = np.hstack((_columns(works, size)[1], fresh))
        coefficients = relative_fit(columns, times)
        return float(np.mean(np.abs(columns @ coefficients / times - 1))), float(coefficients[-1])

    fits = [fitted(size) for size in _CACHES]
    best = first_of_least((error for error, _ in fits), _SAME_ERROR)
    return _CACHES[best], fits[best][1]


def _fit(group: Sequence[TimedWork], cache_bytes: float, fresh: float) -> FamilyFit:
    works, times = _parts(group)
    names, columns = _columns(works, cache_bytes)
    mapping = fresh_bytes(works) * fresh
    rest = np.maximum(times - mapping, _LEAST_SHARE * times)
    coefficients = relative_fit(columns, rest)
    ratio = times / (left_out_seconds(columns, rest, coefficients) + mapping)
    p10, p90 = _robust_quantiles(ratio)
    return FamilyFit(
        seconds_per={name: float(each) for name, each in zip(names, coefficients, strict=True) if each > 0},
        cases=len(times),
        mean_absolute_error=float(np.mean(np.abs(1 / ratio - 1))),
        p10=p10,
        p90=p90,
    )


def _robust_quantiles(ratio: Floats) -> tuple[float, float]:
    """p10 and p90 of ratios by their median and median deviation: the tails of a handful are no estimate."""
    logs = np.log(ratio)
    middle = float(np.median(logs))
    deviation = _NORMAL_DEVIATIONS * float(np.median(np.abs(logs - middle)))
    return math.exp(middle - Z90 * deviation), math.exp(middle + Z90 * deviation)


def left_out_seconds(columns: Floats, times: Floats, coefficients: Floats) -> Floats:
    """Each time as predicted by a fit to all the others; by the fit itself where there are too few.

    None is far below the shortest of the others, as every operator takes at least a call: a fit to others
    whose terms this one does not share would say that it takes no time, which has no logarithm.
    """
    if len(times) <= _FEWEST_LEFT:
        fitted_seconds: Floats = np.maximum(columns @ coefficients, _LEAST_SHARE * times.min())
        return fitted_seconds
    predicted = np.empty(len(times))
    for row in range(len(times)):
        others = np.arange(len(times)) != row
        fitted = columns[row] @ relative_fit(columns[others], times[others])
        predicted[row] = max(fitted, _LEAST_SHARE * times[others].min())
    return predicted


def check_believable(calibration: CpuCalibration, timed: Sequence[TimedWork]) -> None:
    """Raise `BackendFailed` where a calibration predicts operators left out of it badly.

    Badly is worse than `_MOST_ERROR`, or than the best rates that were timed, which need no fit: a roofline.
    """
    fits = calibration.families.values()
    left_out = float(
        np.average([fit.mean_absolute_error for fit in fits], weights=[fit.cases for fit in fits])
    )
    roofline = np.array(
        [
            max(
                item.work.flop / calibration.flop_per_second,
                (item.work.read_bytes + item.work.write_bytes) / calibration.bytes_per_second,
            )
            for item in timed
        ]
    )
    alone = float(np.mean(np.abs(roofline / np.array([item.seconds for item in timed]) - 1)))
    most = min(_MOST_ERROR, alone)
    if not left_out <= most:
        raise BackendFailed(
            f"the calibration was not kept: it predicts operators that were left out of it {left_out:,.0%} "
            f"off, and may be {most:.0%} off at most (this machine's best rates alone: {alone:.0%}). "
            "Something else used the machine while it was timed: stop it, or measure longer (`seconds`)"
        )


def relative_fit(columns: Floats, times: Floats) -> Floats:
    """One non-negative coefficient per column, with the least absolute relative errors of the times.

    Non-negative least squares, reweighted so that residuals count linearly.
    """
    from scipy.optimize import nnls

    # of collinear columns the first enters: its gradient is a little larger, not by rounding
    place = 1 + _FIRST * np.arange(columns.shape[1])
    scale = np.maximum(columns.max(axis=0), np.finfo(float).tiny) * place
    design = columns / scale / times[:, None]
    weights = np.ones(len(times))
    scaled = np.zeros(columns.shape[1])
    for _ in range(_ROUNDS):
        root = np.sqrt(weights)
        scaled = nnls(design * root[:, None], root)[0]
        weights = 1 / np.maximum(np.abs(design @ scaled - 1), _LEAST_RESIDUAL)
    result: Floats = scaled / scale
    return result


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
    return keep_constants(
        calibration, device_id, versions, {"all-reduces": len(timings)}, len(timings), float(np.std(off))
    )
