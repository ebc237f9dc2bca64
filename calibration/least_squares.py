"""Robust non-linear least squares: a soft absolute loss, so that outliers count linearly.

minimise  sum_i rho(r_i(x)),  rho(r) = 2 (sqrt(1 + r²/s²) - 1) s²
"""

from __future__ import annotations

from collections.abc import Callable

from foretrain.prediction.operators.pricing import Floats

_TOLERANCE = 1e-7
"""Relative change of the loss at which the search ends."""


def minimise(
    residuals: Callable[[Floats], Floats], start: Floats, scale: float = 0.05, evaluations: int = 60
) -> Floats:
    """The parameters near `start` with the least robust loss, after at most `evaluations` trial steps.

    Deterministic. Derivatives are finite differences: the models here have a few dozen parameters at most.
    """
    from scipy.optimize import least_squares

    search = least_squares(
        residuals,
        start,
        loss="soft_l1",
        f_scale=scale,
        x_scale="jac",
        ftol=_TOLERANCE,
        max_nfev=evaluations,
    )
    solution: Floats = search.x
    return solution
