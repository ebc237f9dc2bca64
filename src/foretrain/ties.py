"""Decisions that do not hang on the last bit of a number.

exp, log and sums differ between CPUs in the last place. Numbers that are equal by construction (two exact
fits, two collinear columns, a target that the log meets exactly) then differ by rounding, and a plain `min`
or `<` would choose by it. What is chosen here stays the same.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

ROUNDING = 1e-9
"""Numbers that differ by less than this share are equal."""
DIGITS = 9


def first_of_least(values: Iterable[float], tie: float = ROUNDING) -> int:
    """The place of the first value that is the least, or within `tie` of it (a share, and a difference)."""
    listed = np.asarray(list(values), float)
    least = float(np.min(listed))
    return int(np.flatnonzero(listed <= least + tie * (1 + abs(least)))[0]) if np.isfinite(least) else 0


def first_of_most(values: Iterable[float], tie: float = ROUNDING) -> int:
    """The place of the first value that is the largest, or within the share `tie` of it."""
    listed = np.asarray(list(values), float)
    most = float(np.max(listed))
    return int(np.flatnonzero(listed >= most - tie * abs(most))[0]) if np.isfinite(most) else 0


def round_digits(values: NDArray[np.float64], digits: int = DIGITS) -> NDArray[np.float64]:
    """Values to some significant digits: what trees split on must not differ in the last bit."""
    values = np.asarray(values, float)
    known = np.isfinite(values) & (values != 0)
    exponent = np.floor(np.log10(np.abs(np.where(known, values, 1.0))) + ROUNDING)
    scale = 10.0 ** (digits - 1 - exponent)
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = np.round(values * scale) / scale
    return np.asarray(np.where(known & np.isfinite(rounded), rounded, values))
