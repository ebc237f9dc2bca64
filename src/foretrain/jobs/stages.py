"""Stages of training for two-phase plans: where the loss curve flattens, and the value of a batch there.

In a stage of critical batch size B_c, the steps a batch B needs are S(B) = S_min (1 + B_c / B) (S. McCandlish
et al., "An Empirical Model of Large-Batch Training", arXiv:1812.06162), so a step of progress at the
reference batch takes, at another batch,

    seconds = own step seconds · (1 + B_c / B) / (1 + B_c / B_reference)

The critical batch grows as the loss falls: in the steep part large batches are wasted, in the flat tail not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from foretrain.errors import InvalidRequest


def where_it_flattens(steps: ArrayLike, values: ArrayLike) -> float:
    """The step at which a falling or rising curve is farthest from the straight line between its ends.

    From there on a step makes less progress than the average step. Valid for smooth (e.g. fitted) curves; a
    straight line raises `InvalidRequest`.
    """
    at, height = np.asarray(steps, float), np.asarray(values, float)
    if at.ndim != 1 or at.shape != height.shape or len(at) < 3 or not (np.diff(at) > 0).all():
        raise InvalidRequest("a curve needs three or more points, steps rising, each with its value")
    if not np.isfinite(height).all():
        raise InvalidRequest("a curve needs finite values; remove the others")
    change = height[-1] - height[0]
    if change == 0:
        raise InvalidRequest("the curve ends where it began: it has no steep part")
    ahead = (height - height[0]) / change - (at - at[0]) / (at[-1] - at[0])
    if not ahead.max() > 1e-9:
        raise InvalidRequest("the curve never flattens: it ends at least as steep as it began")
    return float(at[np.argmax(ahead)])


def progress_step_seconds(
    step_seconds: float, batch: float, reference_batch: float, critical_batches: Sequence[float]
) -> tuple[float, ...]:
    """Seconds of a step of progress at the reference batch, trained with `batch`, for each stage."""
    for name, value in (
        ("step_seconds", step_seconds),
        ("batch", batch),
        ("reference_batch", reference_batch),
    ):
        if not (math.isfinite(value) and value > 0):
            raise InvalidRequest(f"{name} must be finite and above 0, got {value}")
    if not all(math.isfinite(critical) and critical >= 0 for critical in critical_batches):
        raise InvalidRequest(f"critical batch sizes must be finite and at least 0, got {critical_batches}")
    return tuple(
        step_seconds * (1 + critical / batch) / (1 + critical / reference_batch)
        for critical in critical_batches
    )
