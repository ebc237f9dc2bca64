"""Least relative error with non-negative coefficients: min Σ |Σ_i c_i x_ij / t_j - 1|, c >= 0.

Relative, because a microsecond matters to a small operator and not to a large one; absolute, because a few
times are wild. Solved as reweighted non-negative least squares, each by Lawson and Hanson's active sets:
C. Lawson, R. Hanson, "Solving least squares problems", 1974, chapter 23.
"""

from __future__ import annotations

import numpy as np

from foretrain.prediction.operators.listing import Flags, Floats

_ROUNDS = 12
_LEAST_RESIDUAL = 0.03
_TOLERANCE = 1e-10


def relative_fit(columns: Floats, times: Floats) -> Floats:
    """One non-negative coefficient per column."""
    scale = np.maximum(columns.max(axis=0), np.finfo(float).tiny)
    design = columns / scale / times[:, None]
    weights = np.ones(len(times))
    found = np.zeros(columns.shape[1])
    for _ in range(_ROUNDS):
        root = np.sqrt(weights)
        found = non_negative_least_squares(design * root[:, None], root)
        weights = 1 / np.maximum(np.abs(design @ found - 1), _LEAST_RESIDUAL)
    result: Floats = found / scale
    return result


def non_negative_least_squares(a: Floats, b: Floats) -> Floats:
    """min |a x - b|² with x >= 0."""
    count = a.shape[1]
    x: Floats = np.zeros(count)
    free: Flags = np.zeros(count, bool)
    gradient = a.T @ b
    limit = _TOLERANCE * max(1.0, float(np.abs(gradient).max()))
    for _ in range(3 * count):
        candidates = np.where(free, -np.inf, gradient)
        best = int(np.argmax(candidates))
        if candidates[best] <= limit:
            break
        free[best] = True
        x = _on_face(a, b, x, free)
        gradient = a.T @ (b - a @ x)
    return x


def _on_face(a: Floats, b: Floats, x: Floats, free: Flags) -> Floats:
    """The least squares over the free coefficients, giving up those that would turn negative."""
    while free.any():
        trial = np.zeros(len(x))
        trial[free] = np.linalg.lstsq(a[:, free], b, rcond=None)[0]
        negative = free & (trial <= 0)
        if not negative.any():
            return trial
        room = x[negative] - trial[negative]
        step = float(np.min(np.where(room > 0, x[negative] / np.where(room > 0, room, 1.0), 0.0)))
        x = x + step * (trial - x)
        free &= x > _TOLERANCE
        x = np.where(free, x, 0.0)
    return np.zeros(len(x))
