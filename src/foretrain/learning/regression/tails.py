"""Tails of the F and t distributions, by the incomplete beta function.

    P(F > f) = I_x(d2/2, d1/2),  x = d2 / (d2 + d1 f)        P(|T| > t) = P(F > t²) with d1 = 1

I is computed by Lentz's continued fraction (Numerical Recipes, 6.4); about ten digits.
"""

from __future__ import annotations

import math

_TINY = 1e-300
_ROUNDS = 400
_CLOSE = 1e-14


def f_tail(f: float, between: float, within: float) -> float:
    """The chance of a ratio of variances above `f` with these degrees of freedom."""
    if f <= 0:
        return 1.0
    if math.isinf(f):
        return 0.0
    return _beta_share(within / (within + between * f), within / 2, between / 2)


def t_quantile(share: float, freedom: float) -> float:
    """The value below which `share` (from a half) of Student's t lies, by bisection."""
    if not 0.5 <= share < 1:
        raise ValueError(f"quantile of {share}: give a share from 0.5 to below 1")
    outside = 2 * (1 - share)
    low, high = 0.0, 1.0
    while f_tail(high**2, 1, freedom) > outside:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if f_tail(middle**2, 1, freedom) > outside else (low, middle)
    return (low + high) / 2


def _beta_share(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b)."""
    if x <= 0 or x >= 1:
        return min(max(x, 0.0), 1.0)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(x, a, b) / a
    return 1 - front * _fraction(1 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    c, d = 1.0, 1 / _away(1 - (a + b) * x / (a + 1))
    result = d
    for m in range(1, _ROUNDS):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _away(1 + numerator * d)
            c = _away(1 + numerator / c)
            result *= c * d
        if abs(c * d - 1) < _CLOSE:
            break
    return result


def _away(value: float) -> float:
    """The value, kept off zero."""
    return value if abs(value) > _TINY else _TINY
