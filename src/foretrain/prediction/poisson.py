"""How many of something rare happen: quantiles of a Poisson distribution."""

from __future__ import annotations

import math
from statistics import NormalDist

_MANY = 500.0
"""Above it the normal approximation is right to a thousandth of the mean."""


def poisson_quantile(mean: float, share: float) -> float:
    """The smallest count that at least `share` of all outcomes do not exceed."""
    if mean > _MANY:
        return max(0.0, mean + NormalDist().inv_cdf(share) * math.sqrt(mean))
    count, probability = 0, math.exp(-mean)
    total = probability
    while total < share:
        count += 1
        probability *= mean / count
        total += probability
    return float(count)
