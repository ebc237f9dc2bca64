"""How much step times vary between GPUs, from how steps grow with their number.

A run on n GPUs is predicted from the same run on one: what the exchange of gradients over the shipped links
takes beyond the backward pass, and the wait for the slowest of n workers whose times vary by a coefficient of
variation cv,

    t_n = t_1 + exposed + t_1 (E[max of n] - 1)

What a run on two GPUs takes beyond one is not a wait for the slowest alone (hooks, copies to buckets, kernels
that share the device with NCCL), so the variation is fitted to the growth from two GPUs on,

    t_m / t_n = (even_m / even_n) · E[max of m] / E[max of n]

and to networks whose samples have one size: Lambda's ResNet-50 and SSD. Sentences and utterances of different
lengths make workers wait for another reason (GNMT and Tacotron 2 would give 0.05 to 0.08), and PyTorch's runs
only: in TensorFlow's one host launches for all GPUs. llm-foundry's MPT-7B, whose exchanges are hidden, gives
the same value from 8 to 128 H100 (-1.6 %); it is kept beside the fit, as a check.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from calibration.datasets.lambda_labs_scaling import TENSORFLOW, ScalingRun, read
from calibration.datasets.measurements import rows
from foretrain.errors import MissingData
from foretrain.facts.devices import device
from foretrain.facts.hardware import hardware
from foretrain.prediction.collectives.costs import Group, Verb, collective_seconds
from foretrain.prediction.collectives.network import Network, network_of
from foretrain.prediction.operators.pricing import Flags, Floats
from foretrain.prediction.stragglers import FILE as FILE
from foretrain.prediction.stragglers import expected_maximum, slowdown
from foretrain.prediction.strategies.program import BUCKET_BYTES

CANDIDATES = np.arange(0.0, 0.0801, 0.0025)
_FIXED_SIZE = ("resnet50", "SSD")
_WEAK_SCALING = Path("llm_foundry/mpt_throughput.csv")
_HIDDEN = {"model": "7b", "gpu": "h100_80gb", "seq_len": "2048", "precision": "amp_bf16/DEFAULT"}
"""Of the series whose exchanges are hidden behind computing, in one node and in several."""
_NODE, _NODES = 8, 128
_BACKWARD_SHARE = 2 / 3
"""Of a step; gradients are ready evenly over it."""
_BRIDGES = {"rtx2080ti": "nvlink2:2", "rtx8000": "nvlink2:2"}
"""Of cards bridged in pairs: both links of each."""


def calibrate(data: Path) -> dict[str, Any]:
    """The calibration as it is written."""
    runs = [item for item in read(data) if item.framework != TENSORFLOW and item.network in _FIXED_SIZE]
    predicted = by_links(runs)
    known = ~np.isnan(predicted)
    steps = growth([run for run, is_known in zip(runs, known, strict=True) if is_known], predicted[known])
    off = growth_errors(steps)
    best = int(off.mean(axis=1).argmin())
    return {
        "data": [{"source": "lambda", "runs": int(known.sum()), "pairs": len(steps)}],
        "coefficient_of_variation": float(CANDIDATES[best]),
        "mean_log_error": {"even": float(off[0].mean()), "fitted": float(off[best].mean())},
        "check": [{"source": "llm_foundry", "coefficient_of_variation": _from_weak_scaling(data)}],
    }


@dataclass(frozen=True, slots=True)
class Growth:
    """A run on `fewer` and on `more` GPUs: the ratio of its times, measured and predicted without waits."""

    fewer: int
    more: int
    measured: float
    even: float


def growth(runs: Sequence[ScalingRun], even: Floats) -> list[Growth]:
    """The same runs on one number of GPUs and on the next, from two GPUs on."""
    series: dict[object, dict[int, tuple[float, float]]] = {}
    for item, seconds in zip(runs, even.tolist(), strict=True):
        key = item.machine, item.network, item.precision, item.is_bridged, item.batch, item.is_compiled
        series.setdefault(key, {})[item.devices] = (item.seconds, seconds)
    return [
        Growth(few, many, own[many][0] / own[few][0], own[many][1] / own[few][1])
        for own in series.values()
        for few, many in pairwise(sorted(own))
    ]


def growth_errors(steps: Sequence[Growth]) -> Floats:
    """|log| of predicted over measured growth, for each candidate (rows) and pair of runs (columns)."""
    errors_by_candidate = [
        [abs(np.log(s.even * slowdown(s.more, cv) / slowdown(s.fewer, cv) / s.measured)) for s in steps]
        for cv in CANDIDATES.tolist()
    ]
    return np.array(errors_by_candidate, float)


def _from_weak_scaling(data: Path) -> float:
    """The variation that explains the weak scaling of a model whose exchanges are hidden."""
    speeds = {
        int(row["gpus"]): float(row["tokens_per_second_per_gpu"])
        for row in rows(data / _WEAK_SCALING)
        if all(row[name] == value for name, value in _HIDDEN.items())
    }
    series = [Growth(_NODE, _NODES, speeds[_NODE] / speeds[_NODES], 1.0)]
    return float(CANDIDATES[int(growth_errors(series)[:, 0].argmin())])


def by_links(runs: Sequence[ScalingRun]) -> Floats:
    """The time on one GPU, and what a ring over the shipped links takes beyond the backward pass."""
    return np.array([item.single_seconds + _exposed(item) for item in runs])


def waits(runs: Sequence[ScalingRun]) -> Floats:
    """Seconds beyond the mean worker, for each candidate (rows) and run (columns)."""
    counts = np.array([item.devices for item in runs])
    single = np.array([item.single_seconds for item in runs])
    beyond = [
        [0.0 if cv == 0 else expected_maximum(1.0, cv, count) - 1 for count in range(1, counts.max() + 1)]
        for cv in CANDIDATES.tolist()
    ]
    return np.asarray(np.array(beyond)[:, counts - 1] * single, float)


def errors(runs: Sequence[ScalingRun], predicted: Floats) -> Floats:
    """|log| of predicted over measured, for each candidate (rows) and run (columns)."""
    measured = np.array([item.seconds for item in runs])
    return np.asarray(np.abs(np.log((predicted + waits(runs)) / measured)), float)


def best_candidate(runs: Sequence[ScalingRun], predicted: Floats, among: Flags) -> int:
    """The candidate that explains some of the runs best."""
    return int(np.nanmean(errors(runs, predicted)[:, among], axis=1).argmin())


def _exposed(item: ScalingRun) -> float:
    links = _links(item.device_id, item.devices, item.is_bridged)
    if links is None:
        return float("nan")
    count = max(1, round(item.gradient_bytes / BUCKET_BYTES))
    sizes = np.full(count, item.gradient_bytes / count)
    group = Group(item.devices, item.devices)
    times = collective_seconds(Verb.ALL_REDUCE, sizes, group, links, device(item.device_id)).tolist()
    backward = _BACKWARD_SHARE * item.single_seconds
    end = 0.0
    for number, seconds in enumerate(times, start=1):
        end = max(end, backward * number / count) + seconds
    return end - backward


@cache
def _links(device_id: str, devices: int, is_bridged: bool) -> Network | None:
    """What joins the GPUs; bridges join pairs only."""
    try:
        bridge = _BRIDGES.get(device_id) if is_bridged and devices == 2 else None
        return network_of(hardware(f"{device_id}:{devices}"), intra=bridge)
    except MissingData:
        return None
