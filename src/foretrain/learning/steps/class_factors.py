"""Factors of classes of kernels from whole steps: non-linear least squares in logarithms, pulled towards 1.

    minimise  sum_i rho( log sum_c exp(x_c) T_ic - log y_i ) + pull · sum_c x_c²

Every step is a sum over classes, so factors stay positive and a class that few steps have stays near 1.
"""

from __future__ import annotations

import numpy as np

from foretrain.prediction.operators.listing import Floats

_ITERATIONS = 40
_SETTLED = 1e-5
_LARGEST_STEP = 0.5


def fit_factors(seconds: Floats, measured: Floats, pull: float = 0.1, scale: float = 0.1) -> Floats:
    """The factor of each class (column) that makes the rows' sums come near the measured times."""
    x = np.zeros(seconds.shape[1])
    target = np.log(measured)
    for _ in range(_ITERATIONS):
        parts = seconds * np.exp(x)
        total = parts.sum(axis=1)
        error = np.log(total) - target
        shares = parts / total[:, None]
        weighted = shares * ((1 + (error / scale) ** 2) ** -0.5)[:, None]
        curvature = weighted.T @ shares + pull * np.eye(len(x))
        step = np.linalg.solve(curvature, -(weighted.T @ error + pull * x))
        step = np.clip(step, -_LARGEST_STEP, _LARGEST_STEP)
        x = x + step
        if np.abs(step).max() < _SETTLED:
            break
    return np.exp(x)
