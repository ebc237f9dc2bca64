"""Least squares of few parameters: Gauss-Newton steps, damped until they help.

Reference: D. W. Marquardt, An algorithm for least-squares estimation of nonlinear parameters, 1963.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from foretrain.prediction.operators.listing import Floats

_ROUNDS = 200
_FIRST_DAMPING, _MOST_DAMPING = 1e-3, 1e12
_HELPED, _HARMED = 0.2, 4.0
_ENOUGH = 1e-7


def minimise(
    residuals: Callable[[Floats], Floats], slopes: Callable[[Floats], Floats], start: Floats
) -> Floats:
    """Where the sum of squared residuals is least, near `start`. `slopes` are those of each residual."""
    at: Floats = np.array(start, float)
    off = residuals(at)
    cost, damping = float(off @ off), _FIRST_DAMPING
    for _ in range(_ROUNDS):
        slope = slopes(at)
        curvature, downhill = slope.T @ slope, -slope.T @ off
        while damping < _MOST_DAMPING:
            step = np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), downhill)
            tried = residuals(at + step)
            new = float(tried @ tried)
            if np.isfinite(new) and new <= cost:
                break
            damping *= _HARMED
        else:
            return at
        gained = cost - new
        at, off, cost, damping = at + step, tried, new, max(damping * _HELPED, 1e-12)
        if gained <= _ENOUGH * (1 + cost):
            return at
    return at
