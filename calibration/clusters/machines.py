"""How much longer a step takes on n GPUs of a machine than on one, learned from other networks on it.

    extra = s · single + 2(n-1)/n · gradient bytes / B + tensors · k

s is what all workers slow each other down by (the host, power, the input), B the rate of the ring, k what
each gradient costs beyond its bytes: its launch on every GPU from one host. All three are at least 0, one
set for each n; least absolute relative errors, by weights of least squares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibration.datasets.lambda_labs_scaling import ScalingRun
from foretrain.prediction.operators.pricing import Floats

_SCALES = np.array([1.0, 1e-10, 1e-3])
"""What makes the three terms comparable: seconds, bytes at 10 GB/s, gradients at a millisecond."""
_RIDGE = 0.01
_ROUNDS, _LEAST_OFF = 8, 0.01


@dataclass(frozen=True, slots=True)
class Extras:
    """s, 1/B and k of the module."""

    slowdown: float
    seconds_per_byte: float
    seconds_per_gradient: float

    def seconds(self, runs: Sequence[ScalingRun]) -> Floats:
        """Steps on several GPUs."""
        single = np.array([run.single_seconds for run in runs])
        predicted: Floats = single + terms(runs) @ np.array(
            [self.slowdown, self.seconds_per_byte, self.seconds_per_gradient]
        )
        return predicted


def terms(runs: Sequence[ScalingRun]) -> Floats:
    """What s, 1/B and k are multiplied by."""
    return np.array(
        [
            [run.single_seconds, 2 * (run.devices - 1) / run.devices * run.gradient_bytes, run.gradients]
            for run in runs
        ],
        float,
    )


def fit_extras(runs: Sequence[ScalingRun]) -> Extras:
    """The extras of runs on as many GPUs each; of no runs, none."""
    from scipy.optimize import nnls

    if not runs:
        return Extras(0.0, 0.0, 0.0)
    measured = np.array([run.seconds for run in runs])
    single = np.array([run.single_seconds for run in runs])
    table = terms(runs) * _SCALES / measured[:, None]
    wanted = (measured - single) / measured
    weights = np.ones(len(runs))
    scaled = np.zeros(3)
    for _ in range(_ROUNDS):
        rows = np.vstack([table * weights[:, None], _RIDGE * np.eye(3)])
        scaled = nnls(rows, np.append(wanted * weights, np.zeros(3)))[0]
        off = np.maximum(np.abs(table @ scaled - wanted), _LEAST_OFF)
        weights = np.sqrt(_LEAST_OFF / off)
    return Extras(*(scaled * _SCALES).tolist())
