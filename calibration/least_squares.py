"""Robust non-linear least squares in numpy: Levenberg-Marquardt on a soft absolute loss.

    minimise  sum_i rho(r_i(x)),  rho(r) = 2 (sqrt(1 + r²/s²) - 1) s²

so that a few wild measurements weigh like their size, not its square. Derivatives are finite differences:
the models here have a few dozen parameters at most.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from foretrain.prediction.operators.listing import Floats

_STEP = 1e-5


def minimise(
    residuals: Callable[[Floats], Floats], start: Floats, scale: float = 0.05, iterations: int = 60
) -> Floats:
    """The parameters near `start` with the least robust loss. Deterministic."""
    x, damping = start.astype(float), 1e-2
    r = residuals(x)
    loss = _loss(r, scale)
    for _ in range(iterations):
        weight = (1 + (r / scale) ** 2) ** -0.25
        jacobian = _jacobian(residuals, x, r) * weight[:, None]
        gradient, curvature = jacobian.T @ (r * weight), jacobian.T @ jacobian
        step = np.linalg.solve(curvature + damping * np.diag(np.maximum(np.diag(curvature), 1e-9)), -gradient)
        trial = residuals(x + step)
        trial_loss = _loss(trial, scale)
        if trial_loss < loss:
            settled = loss - trial_loss < 1e-7 * loss
            x, r, loss, damping = x + step, trial, trial_loss, max(damping / 4, 1e-9)
            if settled:
                break
        else:
            damping *= 6
            if damping > 1e8:
                break
    return x


def _loss(r: Floats, scale: float) -> float:
    return float(np.sum(np.sqrt(1 + (r / scale) ** 2) - 1))


def _jacobian(residuals: Callable[[Floats], Floats], x: Floats, r: Floats) -> Floats:
    columns = []
    for index in range(len(x)):
        nudged = x.copy()
        nudged[index] += _STEP
        columns.append((residuals(nudged) - r) / _STEP)
    return np.stack(columns, axis=1)
