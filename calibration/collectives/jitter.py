"""How much step times vary between GPUs, from Lambda's runs on two to eight of them.

A run on n GPUs is predicted from the same run on one: what the exchange of gradients over the shipped links
takes beyond the backward pass, and the wait for the slowest of n workers whose times vary by a coefficient of
variation cv,

    t_n = t_1 + exposed + t_1 (E[max of n] - 1)

The cv that brings these nearest to the measurements (mean of |log|) is kept. PyTorch's runs only: in
TensorFlow's one host launches for all GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from calibration.datasets.lambda_labs_scaling import TENSORFLOW, ScalingRun, read
from foretrain.errors import MissingData
from foretrain.facts.devices import device
from foretrain.facts.hardware import hardware
from foretrain.prediction.collectives import Group, Network, Verb, collective_seconds, network_of
from foretrain.prediction.operators.listing import Flags, Floats
from foretrain.prediction.stragglers import FILE as FILE
from foretrain.prediction.stragglers import expected_maximum
from foretrain.prediction.strategies.gradients import BUCKET_BYTES

CANDIDATES = np.arange(0.0, 0.0801, 0.005)
_BACKWARD_SHARE = 2 / 3
"""Of a step; gradients are ready evenly over it."""
_BRIDGES = {"rtx2080ti": "nvlink2:2", "rtx8000": "nvlink2:2"}
"""Of cards bridged in pairs: both links of each."""


def calibrate(data: Path) -> dict[str, Any]:
    """The calibration as it is written."""
    runs = [item for item in read(data) if item.framework != TENSORFLOW]
    predicted = by_links(runs)
    known = ~np.isnan(predicted)
    best = best_candidate(runs, predicted, known)
    off = errors(runs, predicted)
    return {
        "data": [{"source": "lambda", "runs": int(known.sum())}],
        "coefficient_of_variation": float(CANDIDATES[best]),
        "mean_log_error": {"even": float(off[0][known].mean()), "fitted": float(off[best][known].mean())},
    }


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
