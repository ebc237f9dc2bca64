"""Billed time of many rentals at once: `facts.billing.billed_seconds` over arrays."""

from __future__ import annotations

import numpy as np

from foretrain.convergence.curves import Floats
from foretrain.facts.billing import ROUNDING_DIGITS

ROUNDING_SLACK = 1e-6
"""Units are counted to a millionth, as in `facts.billing`, so a bill may fall short by half of one."""


def billed_seconds_each(seconds: Floats, granularity: Floats, minimum: Floats) -> Floats:
    """⌈max(t, minimum) / granularity⌉ · granularity; max(t, minimum) without granularity; 0 for no time."""
    charged = np.maximum(seconds, minimum)
    has_units = granularity > 0
    unit = np.where(has_units, granularity, 1.0)
    rounded = np.ceil(np.round(charged / unit, ROUNDING_DIGITS)) * unit
    return np.asarray(np.where(seconds == 0, 0.0, np.where(has_units, rounded, charged)), dtype=float)
