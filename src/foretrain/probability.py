"""Probabilities from the three quantiles that every prediction has."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foretrain.errors import InvalidRequest

Floats = NDArray[np.float64]
Z90 = 1.2815515655446004
"""Standard deviations from the median of a normal distribution to its 90th percentile."""
_WITHIN = (0.2, 0.8)
"""Bounds of the probability of staying within p50, so that p10 and p90 stay on their sides of it."""
_normal_cdf = np.frompyfunc(lambda deviations: 0.5 * math.erfc(-deviations / math.sqrt(2)), 1, 1)

_normal_quantile = np.frompyfunc(NormalDist().inv_cdf, 1, 1)


def _inverse(share: Floats) -> Floats:
    return np.asarray(_normal_quantile(share), dtype=float)


def probability_within(
    p10: ArrayLike, p50: ArrayLike, p90: ArrayLike, limit: float, within: ArrayLike = 0.5
) -> Floats:
    """The probability that each quantity stays within the limit, from its three quantiles.

    `within` is the probability q of staying within p50, which is not one half where predictions are known to
    be low. The logarithm is half a normal distribution on either side of p50, of mass q and 1 - q:

        P = 2 q Φ(d) below, d = -z ln(limit / p50) / ln(p10 / p50), 2 q Φ(-z) = 0.1
        P = q + (1 - q) (2 Φ(d) - 1) above, d = z ln(limit / p50) / ln(p90 / p50), P = 0.9 at d = z

    So it is exactly 10, 100 q and 90 % at p10, p50 and p90. Where a side has no width it is a step.
    """
    q = np.clip(np.asarray(within, float), *_WITHIN)
    low, middle, high = np.broadcast_arrays(*(np.asarray(side, float) for side in (p10, p50, p90)))
    if not ((low >= 0) & (low <= middle) & (middle <= high)).all():
        raise InvalidRequest("quantiles must be at least 0 and in order: p10 <= p50 <= p90")
    if math.isnan(limit):
        raise InvalidRequest("the limit is not a number")
    below, above = -_inverse(0.1 / (2 * q)), _inverse(0.5 + (0.9 - q) / (1 - q) / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = np.log(limit / middle) if limit > 0 else np.full(middle.shape, -math.inf)
        width = np.where(limit >= middle, np.log(high / middle) / above, np.log(middle / low) / below)
        deviations = distance / width
    known = np.isfinite(width) & (width > 0)
    mass = 2 * np.asarray(_normal_cdf(np.where(known, deviations, 0.0)), dtype=float)
    share = np.where(limit >= middle, q + (1 - q) * (mass - 1), q * mass)
    step = np.where(limit >= middle, 1.0, np.where(width > 0, q, 0.0))
    # A p10 (or a median) of 0 leaves the lower half anywhere in (0, p50).
    return np.asarray(np.where(known, share, np.where(limit >= low, step, 0.0)), dtype=float)
