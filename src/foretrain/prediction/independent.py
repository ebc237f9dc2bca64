"""Products of quantities that err independently of each other."""

from __future__ import annotations

import math

from foretrain.estimates import Quantiles


def product(one: Quantiles, other: Quantiles) -> Quantiles:
    """The product of two that err independently: relative deviations add in quadrature."""
    p50 = one.p50 * other.p50
    if p50 == 0:
        return Quantiles(0.0, 0.0, 0.0)
    below = math.hypot(1 - one.p10 / one.p50, 1 - other.p10 / other.p50)
    above = math.hypot(one.p90 / one.p50 - 1, other.p90 / other.p50 - 1)
    return Quantiles(p50 * max(0.0, 1 - below), p50, p50 * (1 + above))
