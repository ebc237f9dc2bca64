"""Probabilities from the three quantiles that every prediction has."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foretrain.errors import InvalidRequest

Floats = NDArray[np.float64]
_NORMAL_P90 = NormalDist().inv_cdf(0.9)
_normal_cdf = np.frompyfunc(lambda deviations: 0.5 * math.erfc(-deviations / math.sqrt(2)), 1, 1)


def probability_within(p10: ArrayLike, p50: ArrayLike, p90: ArrayLike, limit: float) -> Floats:
    """The probability that each quantity stays within the limit, from its three quantiles.

    The logarithm is assumed normal on either side of the median, with the deviation of that side's quantile:
    σ = ln(p90 / p50) / z above and ln(p50 / p10) / z below, z = 1.2816; P = Φ(ln(limit / p50) / σ).
    So it is exactly 10, 50 and 90 % at p10, p50 and p90. Where a side has no width it is a step.
    """
    low, middle, high = np.broadcast_arrays(*(np.asarray(side, float) for side in (p10, p50, p90)))
    if not ((low >= 0) & (low <= middle) & (middle <= high)).all():
        raise InvalidRequest("quantiles must be at least 0 and in order: p10 <= p50 <= p90")
    if math.isnan(limit):
        raise InvalidRequest("the limit is not a number")
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = np.log(limit / middle) if limit > 0 else np.full(middle.shape, -math.inf)
        width = np.where(limit >= middle, np.log(high / middle), np.log(middle / low)) / _NORMAL_P90
        deviations = distance / width
    known = np.isfinite(width) & (width > 0)
    share = np.asarray(_normal_cdf(np.where(known, deviations, 0.0)), dtype=float)
    step = np.where(limit >= middle, 1.0, np.where(width > 0, 0.5, 0.0))
    # A p10 (or a median) of 0 leaves the lower half anywhere in (0, p50).
    return np.asarray(np.where(known, share, np.where(limit >= low, step, 0.0)), dtype=float)
