"""A task without a graph, predicted for another GPU from its times on some: a mix of what GPUs do.

    t = software · ( Σ_k w_k · seconds of a unit of k on the GPU + (c + m · seconds of a byte) / batch )

k: a FLOP of a large product, a FLOP of a convolution, a byte streamed, a clock cycle; the last two terms are
the host's and the optimizer's share of a step. The units are priced by the operator models for the precision
run, and where the task's graph is known the price of its step is one k more. The weights are at least 0,
fitted per task and precision on GPUs that were timed, and drawn together by a prior where the GPUs timed
cannot separate them. `software` is a factor for each generation of containers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from calibration.datasets.lambda_labs import LambdaRun
from calibration.datasets.works import Convolution, product
from calibration.least_squares import minimise
from foretrain.facts.devices import Device, device
from foretrain.prediction.operators.pricing import Floats, operator_models, price
from foretrain.workloads.graph import Phase
from foretrain.workloads.ops import Direction, Kind, Op, Work

_CONTAINERS: Mapping[str, int] = {
    "1.4": 0,
    "1.7": 1,
    "1.9": 1,
    "1.10": 1,
    "1.13": 2,
    "2.1": 3,
    "2.3": 3,
    "2.5": 3,
}
"""Generations of PyTorch containers: what lies between them changes kernels for most tasks."""
_GENERATIONS = 4
_SPREAD_OF_WEIGHTS, _SPREAD_OF_SOFTWARE = 1.5, 0.1
_PRIOR_WEIGHT = 0.03
_RESIDUAL_SCALE = 0.1
_LAYERS = ((64, 56, 3), (128, 28, 3), (256, 14, 3), (512, 28, 1))
"""Channels, pixels and kernel of ResNet-50's commonest convolutions."""
_DIRECTIONS = (Direction.FORWARD, Direction.INPUT_GRADIENT, Direction.WEIGHT_GRADIENT)
_STREAMED = 1 << 26


def computed_in(target: Device, precision: str) -> str:
    """The type products run in: TF32 where "FP32" means that."""
    if precision == "fp16":
        return "float16"
    return "tf32" if target.sheet.has("tf32_tensor_flop_per_second") else "float32"


@cache
def units(device_id: str, precision: str) -> tuple[float, ...]:
    """Seconds of a product's FLOP, a convolution's FLOP, a streamed byte and a clock cycle."""
    target = device(device_id)
    dtype = computed_in(target, precision)
    storage = "float16" if precision == "fp16" else "float32"
    large = replace(product(1, 4096, 1024, 1024, storage, is_linear=True), dtype=dtype)
    layers = [_typed(_layer(*sizes).work(way), dtype) for sizes in _LAYERS for way in _DIRECTIONS]
    size = 4.0 * _STREAMED
    stream = Work(
        Kind.ELEMENTWISE, Direction.FORWARD, {"elements": _STREAMED}, "float32", float(_STREAMED), size, size
    )
    return (
        _seconds([large], target) / large.flop,
        _seconds(layers, target) / sum(work.flop for work in layers),
        _seconds([stream], target) / (2 * size),
        1 / target.sheet.number("boost_clock_hertz"),
    )


def _layer(channels: int, pixels: int, kernel: int) -> Convolution:
    return Convolution(
        batch=64,
        in_channels=channels,
        out_channels=channels,
        size=(pixels, pixels),
        kernel=(kernel, kernel),
        stride=(1, 1),
        padding=(kernel // 2, kernel // 2),
    )


def _typed(work: Work, dtype: str) -> Work:
    share = 0.5 if dtype == "float16" else 1.0
    return replace(
        work,
        dtype=dtype,
        dims={**work.dims, "channels_last": 1},
        read_bytes=work.read_bytes * share,
        write_bytes=work.write_bytes * share,
    )


def _seconds(works: Sequence[Work], target: Device) -> float:
    ops = [Op(work, index, "", Phase.FORWARD, "", False) for index, work in enumerate(works)]
    return float(price(ops, target, operator_models(target)).seconds.sum())


@dataclass(frozen=True, slots=True)
class TaskRun:
    """A run, and the price of one sample of its graph where the task has one."""

    run: LambdaRun
    price: float | None = None


@dataclass(frozen=True, eq=False)
class TaskProfile:
    """A fitted mix: `logs` of weights and software; each of the `units` would explain the median run."""

    units: Floats
    logs: Floats

    def seconds(self, runs: Sequence[TaskRun]) -> Floats:
        """Seconds of one sample."""
        return _mix(self.logs, _rows(runs) / self.units, _generations(runs))


def fit_profile(runs: Sequence[TaskRun]) -> TaskProfile:
    """The mix of the runs of one task and precision; all of them priced, or none."""
    rows, measured = _rows(runs), np.array([item.run.seconds for item in runs])
    scale = np.median(rows / measured[:, None], axis=0)
    rows, generations = rows / scale, _generations(runs)
    count = rows.shape[1]
    start = np.concatenate([np.full(count, -np.log(count)), np.zeros(_GENERATIONS)])
    spread = np.concatenate(
        [
            np.full(count, _SPREAD_OF_WEIGHTS / _PRIOR_WEIGHT),
            np.full(_GENERATIONS, _SPREAD_OF_SOFTWARE / _RESIDUAL_SCALE),
        ]
    )
    logs = np.log(measured)

    def residuals(x: Floats) -> Floats:
        return np.concatenate([np.log(_mix(x, rows, generations)) - logs, (x - start) / spread])

    return TaskProfile(scale, minimise(residuals, start, scale=_RESIDUAL_SCALE, evaluations=40))


def _rows(runs: Sequence[TaskRun]) -> Floats:
    rows = []
    for item in runs:
        each = units(item.run.device_id, item.run.precision)
        of_a_step = (1 / item.run.batch, each[2] / item.run.batch)
        rows.append([*each, *of_a_step, *(() if item.price is None else (item.price,))])
    return np.array(rows)


def _generations(runs: Sequence[TaskRun]) -> list[int]:
    return [_CONTAINERS[item.run.software] for item in runs]


def _mix(logs: Floats, rows: Floats, generations: Sequence[int]) -> Floats:
    count = rows.shape[1]
    software = np.exp(logs[count:])[list(generations)]
    seconds: Floats = rows @ np.exp(logs[:count]) * software
    return seconds
